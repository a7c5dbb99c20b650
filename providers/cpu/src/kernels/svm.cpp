// SVMRegressor and SVMClassifier of ai.onnx.ml (https://onnx.ai/onnx/operators/#ai-onnx-ml), with integer labels, in
// float64. Probabilities of more than two classes couple those of pairs as LIBSVM does (Wu, Lin, Weng 2004).
#include <algorithm>
#include <cmath>

#include "kernels/forest.h"
#include "kernels/rows.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

enum class SvmKernel { Linear, Poly, Rbf, Sigmoid };

struct Machine {
    SvmKernel kernel = SvmKernel::Linear;
    double gamma = 0, offset = 0;
    int degree = 0;
    std::vector<double> vectors, coefficients, rho;
    int64_t supports = 0;  // 0: linear, the coefficients are the planes themselves

    double evaluate(const double* x, const double* v, int64_t n) const {
        const bool distance = kernel == SvmKernel::Rbf;
        double parts[8] = {}, total = 0;
        int64_t i = 0;
        for (; i + 8 <= n; i += 8)
            for (int k = 0; k < 8; ++k) parts[k] += distance ? (x[i + k] - v[i + k]) * (x[i + k] - v[i + k]) : x[i + k] * v[i + k];
        for (; i < n; ++i) total += distance ? (x[i] - v[i]) * (x[i] - v[i]) : x[i] * v[i];
        for (double part : parts) total += part;
        switch (kernel) {
            case SvmKernel::Linear: return total;
            case SvmKernel::Poly: return std::pow(total * gamma + offset, degree);
            case SvmKernel::Rbf: return std::exp(-gamma * total);
            default: return std::tanh(total * gamma + offset);
        }
    }
    // How many features a row has.
    int64_t width(int64_t planes) const {
        return static_cast<int64_t>(supports ? vectors.size() : coefficients.size()) / (supports ? supports : planes);
    }
};

Machine read_machine(const Attrs& attrs, int64_t supports) {
    Machine m;
    const std::string kernel = attrs.text("kernel_type", "LINEAR");
    const char* const names[] = {"LINEAR", "POLY", "RBF", "SIGMOID"};
    const auto found = std::find(std::begin(names), std::end(names), kernel);
    if (found == std::end(names)) throw Unsupported("the kernel '" + kernel + "'");
    m.supports = supports;
    if (supports > 0) m.kernel = static_cast<SvmKernel>(found - std::begin(names));
    const std::vector<double> parameters = attrs.reals("kernel_params");
    if (!parameters.empty() && parameters.size() < 3) throw BadOperand("kernel_params has less than three entries");
    if (!parameters.empty()) {
        m.gamma = parameters[0];
        m.offset = parameters[1];
        m.degree = static_cast<int>(std::clamp(parameters[2], -1e6, 1e6));
    }
    m.vectors = attrs.reals("support_vectors");
    m.coefficients = attrs.reals("coefficients");
    m.rho = attrs.reals("rho");
    return m;
}
void expect_entries(const std::vector<double>& list, int64_t wanted, const char* name) {
    if (static_cast<int64_t>(list.size()) < wanted) throw BadOperand(std::string(name) + " has " + std::to_string(list.size()) + " entries, expected " + std::to_string(wanted));
}
RowsOf checked_rows(const Tensor& x, int64_t width) {
    const RowsOf rows(x.shape());
    if (rows.width != width) throw BadOperand("rows of " + std::to_string(rows.width) + " features, the machine is for " + std::to_string(width));
    return rows;
}

class RunRegressor final : public Prepared {
  public:
    RunRegressor(std::shared_ptr<const Machine> machine, bool one_class, const RowsOf& x) : machine_(std::move(machine)), one_class_(one_class), x_(x) {}
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const Machine& m = *machine_;
        parallel_ranges(context.threads, x_.rows, 1 + 16384 / (1 + x_.width * (1 + m.supports)), [&](int64_t begin, int64_t end) {
            std::vector<double> x(static_cast<size_t>(x_.width));
            for (int64_t r = begin; r < end; ++r) {
                read_numbers(in[0], r * x_.width, x.data(), x_.width);
                double score = m.rho[0];
                if (m.supports == 0) score += m.evaluate(x.data(), m.coefficients.data(), x_.width);
                for (int64_t j = 0; j < m.supports; ++j)
                    score += m.coefficients[static_cast<size_t>(j)] * m.evaluate(x.data(), m.vectors.data() + j * x_.width, x_.width);
                out[0].as<float>()[r] = static_cast<float>(one_class_ ? (score > 0 ? 1 : -1) : score);
            }
        });
    }

  private:
    std::shared_ptr<const Machine> machine_;
    bool one_class_;
    RowsOf x_;
};

class SvmRegressor final : public Kernel {
  public:
    explicit SvmRegressor(const NodeSpec& s) : one_class_(s.attrs.integer("one_class", 0) != 0) {
        if (!s.has_input(0)) throw Unsupported("the input is missing");
        expect_numbers(s.inputs[0].dtype);
        if (transform_named(s.attrs.text("post_transform", "NONE")) != Transform::None) throw Unsupported("a transform of the result");
        const Machine m = read_machine(s.attrs, std::max<int64_t>(0, s.attrs.integer("n_supports", 0)));
        expect_entries(m.rho, 1, "rho");
        expect_entries(m.coefficients, m.supports, "coefficients");
        machine_ = std::make_shared<const Machine>(m);
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const RowsOf x = checked_rows(in[0], machine_->width(1));
        out[0] = {DType::F32, {x.rows, 1}};
        return std::make_unique<RunRegressor>(machine_, one_class_, x);
    }

  private:
    bool one_class_;
    std::shared_ptr<const Machine> machine_;
};

struct ClassifierSpec {
    Machine machine;
    std::vector<int64_t> labels, first, counts;  // of the support vectors of each class
    std::vector<double> prob_a, prob_b;
    Transform transform = Transform::None;
    bool positive = false;                       // no coefficient is negative
    int64_t classes() const { return static_cast<int64_t>(labels.size()); }
    int64_t pairs() const { return classes() * (classes() - 1) / 2; }
    bool probable() const { return machine.supports > 0 && !prob_a.empty(); }
    bool single() const { return machine.supports > 0 && !probable() && classes() == 2; }  // one score tells both
};

// Probabilities of k classes from those of pairs, r[i * k + j] that of i against j.
void couple(const std::vector<double>& r, size_t k, double* p) {
    std::vector<double> q(k * k), qp(k);
    for (size_t t = 0; t < k; ++t) {
        p[t] = 1.0 / static_cast<double>(k);
        for (size_t j = 0; j < k; ++j) {
            if (j == t) continue;
            q[t * k + t] += r[j * k + t] * r[j * k + t];
            q[t * k + j] = -r[j * k + t] * r[t * k + j];
        }
    }
    for (size_t round = 0; round < std::max<size_t>(100, k); ++round) {
        double pqp = 0, error = 0;
        for (size_t t = 0; t < k; ++t) {
            qp[t] = 0;
            for (size_t j = 0; j < k; ++j) qp[t] += q[t * k + j] * p[j];
            pqp += p[t] * qp[t];
        }
        for (double v : qp) error = std::max(error, std::abs(v - pqp));
        if (error < 0.005 / static_cast<double>(k)) return;
        for (size_t t = 0; t < k; ++t) {
            const double step = (pqp - qp[t]) / q[t * k + t];
            p[t] += step;
            pqp = (pqp + step * (step * q[t * k + t] + 2 * qp[t])) / (1 + step) / (1 + step);
            for (size_t j = 0; j < k; ++j) {
                qp[j] = (qp[j] + step * q[t * k + j]) / (1 + step);
                p[j] /= 1 + step;
            }
        }
    }
}

class RunClassifier final : public Prepared {
  public:
    RunClassifier(std::shared_ptr<const ClassifierSpec> spec, const RowsOf& x, int64_t columns, const bool* wanted)
        : spec_(std::move(spec)), x_(x), columns_(columns), wanted_{wanted[0], wanted[1]} {}
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        parallel_ranges(context.threads, x_.rows, 1 + 16384 / (1 + x_.width * (1 + spec_->machine.supports)), [&](int64_t begin, int64_t end) {
            std::vector<double> x(static_cast<size_t>(x_.width));
            for (int64_t r = begin; r < end; ++r) {
                read_numbers(in[0], r * x_.width, x.data(), x_.width);
                row(x.data(), r, out);
            }
        });
    }

  private:
    void row(const double* x, int64_t r, const Tensor* out) const {
        const ClassifierSpec& s = *spec_;
        std::vector<double> scores, votes;
        if (s.machine.supports > 0) vote(x, scores, votes);
        else scores = planes(x);
        if (s.probable()) scores = probabilities(scores);
        if (wanted_[0]) out[0].as<int64_t>()[r] = label(votes.empty() ? scores : votes);
        if (scores.size() == 1) scores = {-scores[0], scores[0]};
        transform_scores(s.transform, scores.data(), columns_);
        if (wanted_[1]) std::copy(scores.begin(), scores.end(), out[1].as<float>() + r * columns_);
    }
    int64_t label(const std::vector<double>& weights) const {
        const size_t best = static_cast<size_t>(std::max_element(weights.begin(), weights.end()) - weights.begin());
        const ClassifierSpec& s = *spec_;
        if (s.machine.rho.size() == 1 && s.classes() == 2 && !s.probable() && s.positive && weights[best] >= 0.5) return s.labels[1];
        return s.labels[best];
    }
    std::vector<double> planes(const double* x) const {
        const Machine& m = spec_->machine;
        std::vector<double> scores;
        for (int64_t c = 0; c < spec_->classes(); ++c) scores.push_back(m.rho[0] + m.evaluate(x, m.coefficients.data() + c * x_.width, x_.width));
        return scores;
    }
    // A machine for every pair of classes.
    void vote(const double* x, std::vector<double>& scores, std::vector<double>& votes) const {
        const ClassifierSpec& s = *spec_;
        const Machine& m = s.machine;
        std::vector<double> near;
        for (int64_t j = 0; j < m.supports; ++j) near.push_back(m.evaluate(x, m.vectors.data() + j * x_.width, x_.width));
        votes.assign(s.labels.size(), 0);
        const auto side = [&](size_t row, size_t type) {
            double sum = 0;
            for (int64_t k = s.first[type]; k < s.first[type] + s.counts[type]; ++k)
                sum += m.coefficients[row * static_cast<size_t>(m.supports) + static_cast<size_t>(k)] * near[static_cast<size_t>(k)];
            return sum;
        };
        for (size_t i = 0; i < s.labels.size(); ++i)
            for (size_t j = i + 1; j < s.labels.size(); ++j) {
                scores.push_back(m.rho[scores.size()] + side(j - 1, i) + side(i, j));
                ++votes[scores.back() > 0 ? i : j];
            }
    }
    std::vector<double> probabilities(const std::vector<double>& scores) const {
        const size_t k = spec_->labels.size();
        std::vector<double> r(k * k), p(k);
        size_t at = 0;
        for (size_t i = 0; i < k; ++i)
            for (size_t j = i + 1; j < k; ++j, ++at) {
                const double first = 1 / (1 + std::exp(scores[at] * spec_->prob_a[at] + spec_->prob_b[at]));
                r[i * k + j] = std::clamp(first, 1e-7, 1 - 1e-7);
                r[j * k + i] = 1 - r[i * k + j];
            }
        couple(r, k, p.data());
        return p;
    }
    std::shared_ptr<const ClassifierSpec> spec_;
    RowsOf x_;
    int64_t columns_;
    bool wanted_[2];
};

class SvmClassifier final : public Kernel {
  public:
    explicit SvmClassifier(const NodeSpec& s) {
        if (!s.has_input(0)) throw Unsupported("the input is missing");
        expect_numbers(s.inputs[0].dtype);
        auto spec = std::make_shared<ClassifierSpec>();
        spec->labels = s.attrs.integers("classlabels_ints");
        if (spec->labels.size() < 2) throw Unsupported("labels that are strings, or a single one");
        spec->counts = s.attrs.integers("vectors_per_class");
        int64_t supports = 0;
        for (int64_t n : spec->counts) {
            if (n < 0 || n > (int64_t{1} << 40)) throw BadOperand("vectors_per_class has an entry of " + std::to_string(n));
            spec->first.push_back(supports);
            supports += n;
        }
        spec->machine = read_machine(s.attrs, supports);
        spec->transform = transform_named(s.attrs.text("post_transform", "NONE"));
        spec->prob_a = s.attrs.reals("prob_a");
        spec->prob_b = s.attrs.reals("prob_b");
        const auto& c = spec->machine.coefficients;
        spec->positive = std::all_of(c.begin(), c.end(), [](double v) { return v >= 0; });
        check(*spec);
        for (size_t i = 0; i < 2; ++i) wanted_[i] = s.has_output(i);
        spec_ = spec;
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const RowsOf x = checked_rows(in[0], spec_->machine.width(spec_->classes()));
        const bool pairs = spec_->machine.supports > 0 && !spec_->probable() && !spec_->single();
        const int64_t columns = pairs ? spec_->pairs() : spec_->classes();
        if (wanted_[0]) out[0] = {DType::I64, {x.rows}};
        if (wanted_[1]) out[1] = {DType::F32, {x.rows, columns}};
        return std::make_unique<RunClassifier>(spec_, x, columns, wanted_);
    }

  private:
    static void check(const ClassifierSpec& s) {
        const Machine& m = s.machine;
        if (m.supports == 0) {
            if (s.labels.size() > 2 && m.rho.size() == 1) throw Unsupported("one constant for several planes");
            return expect_entries(m.rho, 1, "rho");
        }
        if (s.counts.size() != s.labels.size()) throw BadOperand("vectors_per_class does not fit the labels");
        expect_entries(m.rho, s.pairs(), "rho");
        if (static_cast<int64_t>(m.coefficients.size()) / m.supports < s.classes() - 1) throw BadOperand("there are too few coefficients");
        if (!s.probable()) return;
        expect_entries(s.prob_a, s.pairs(), "prob_a");
        expect_entries(s.prob_b, s.pairs(), "prob_b");
    }
    std::shared_ptr<const ClassifierSpec> spec_;
    bool wanted_[2];
};

}  // namespace

void register_svm(Registry& r) {
    r.add("SVMRegressor", [](const NodeSpec& s) { return std::make_unique<SvmRegressor>(s); }, "ai.onnx.ml");
    r.add("SVMClassifier", [](const NodeSpec& s) { return std::make_unique<SvmClassifier>(s); }, "ai.onnx.ml");
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
