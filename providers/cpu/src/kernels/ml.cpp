// Classical machine learning over rows of features: Scaler, Normalizer, LinearClassifier (integer labels).
// https://onnx.ai/onnx/operators/onnx_aionnxml_Scaler.html, _Normalizer.html, _LinearClassifier.html
#include <algorithm>
#include <cmath>

#include "kernels/axes.h"
#include "kernels/dtypes.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

using FeatureTypes = Types<float, double, int32_t, int64_t>;

int64_t row_grain(int64_t features) { return 16384 / (features + 1) + 1; }

void expect_matrix(const Tensor& x) {
    if (x.shape().rank != 1 && x.shape().rank != 2) throw BadOperand("the input must be rows of features, its shape is " + x.shape().str());
}

struct ScalerRun final : Prepared {
    std::vector<double> offset, scale;  // of every feature, or one for all

    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const int64_t n = out[0].count();
        if (n == 0) return;
        const int64_t features = in[0].shape().rank ? in[0].shape().back() : 1;
        const size_t offset_step = offset.size() > 1, scale_step = scale.size() > 1;
        visit<FeatureTypes>(in[0].dtype(), [&](auto t) {
            const auto* x = in[0].as<decltype(t)>();
            float* y = out[0].as<float>();
            parallel_ranges(context.threads, n / features, row_grain(features), [&](int64_t begin, int64_t end) {
                for (int64_t i = begin * features; i < end * features; ++i) {
                    const size_t f = static_cast<size_t>(i % features);
                    y[i] = static_cast<float>((static_cast<double>(x[i]) - offset[f * offset_step]) * scale[f * scale_step]);
                }
            });
        });
    }
};

class Scaler final : public Kernel {
  public:
    explicit Scaler(const NodeSpec& s) : offset_(s.attrs.reals("offset", {0})), scale_(s.attrs.reals("scale", {1})) {}
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape& x = in[0].shape();
        const size_t features = x.rank ? static_cast<size_t>(x.back()) : 1;
        for (const auto* list : {&offset_, &scale_})
            if (list->size() != 1 && list->size() != features)
                throw BadOperand(std::to_string(list->size()) + " offsets or scales for an input of shape " + x.str());
        out[0] = {DType::F32, x};
        auto run = std::make_unique<ScalerRun>();
        run->offset = offset_;
        run->scale = scale_;
        return run;
    }

  private:
    std::vector<double> offset_, scale_;
};

enum class Norm { Max, L1, L2 };

struct NormalizerRun final : Prepared {
    Norm norm;

    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        if (out[0].count() == 0) return;
        const int64_t features = in[0].shape().back();
        visit<FeatureTypes>(in[0].dtype(), [&](auto t) {
            const auto* x = in[0].as<decltype(t)>();
            float* y = out[0].as<float>();
            parallel_ranges(context.threads, out[0].count() / features, row_grain(features), [&](int64_t begin, int64_t end) {
                for (int64_t r = begin; r < end; ++r) {
                    const double divisor = length(x + r * features, features);
                    for (int64_t i = r * features; i < (r + 1) * features; ++i)
                        y[i] = static_cast<float>(divisor == 0 ? static_cast<double>(x[i]) : static_cast<double>(x[i]) / divisor);
                }
            });
        });
    }

  private:
    template <class T> double length(const T* row, int64_t n) const {
        double sum = 0;
        for (int64_t i = 0; i < n; ++i) {
            const double a = std::abs(static_cast<double>(row[i]));
            sum = norm == Norm::Max ? std::max(sum, a) : sum + (norm == Norm::L1 ? a : a * a);
        }
        return norm == Norm::L2 ? std::sqrt(sum) : sum;
    }
};

class Normalizer final : public Kernel {
  public:
    explicit Normalizer(const NodeSpec& s) {
        const std::string name = s.attrs.text("norm", "MAX");
        if (name != "MAX" && name != "L1" && name != "L2") throw BadOperand("norm is " + name + ", expected MAX, L1 or L2");
        norm_ = name == "MAX" ? Norm::Max : name == "L1" ? Norm::L1 : Norm::L2;
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        expect_matrix(in[0]);
        out[0] = {DType::F32, in[0].shape()};
        auto run = std::make_unique<NormalizerRun>();
        run->norm = norm_;
        return run;
    }

  private:
    Norm norm_;
};

// What becomes of one row of scores; as the reference implementation has it.
using Transform = void (*)(float* scores, int64_t n);

void logistic(float* s, int64_t n) {
    for (int64_t i = 0; i < n; ++i) s[i] = 1 / (1 + std::exp(-s[i]));
}

// Scores next to zero are scaled rather than raised where `keep_zero`.
template <bool kKeepZero> void softmax_of(float* s, int64_t n) {
    const float most = *std::max_element(s, s + n);
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) {
        const bool zero = kKeepZero && std::abs(s[i]) <= 1e-7f;
        s[i] = zero ? s[i] * std::exp(-most) : std::exp(s[i] - most);
        sum += s[i];
    }
    for (int64_t i = 0; i < n; ++i) s[i] = sum == 0 ? 0.5f : s[i] / sum;
}

void probit(float* s, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        const double x = 2.0 * s[i] - 1, rest = (1 - x) * (1 + x);
        if (rest == 0) {
            s[i] = 0;
            continue;
        }
        const double log = std::log(rest), v = 2 / (3.14159265358979323846 * 0.147) + 0.5 * log;
        const double root = std::sqrt(std::sqrt(v * v - log / 0.147) - v);
        s[i] = static_cast<float>(1.41421356 * (x < 0 ? -root : root));
    }
}

Transform transform_of(const std::string& name) {
    if (name == "NONE") return [](float*, int64_t) {};
    if (name == "LOGISTIC") return logistic;
    if (name == "SOFTMAX") return softmax_of<false>;
    if (name == "SOFTMAX_ZERO") return softmax_of<true>;
    if (name == "PROBIT") return probit;
    throw BadOperand("post_transform is " + name);
}

struct Classes {
    std::vector<double> coefficients, intercepts;  // one row of coefficients for every plane
    std::vector<int64_t> labels;                   // may be empty: the number of the class
    Transform transform;
    float threshold;                               // of a single score
};

struct LinearClassifierRun final : Prepared {
    std::shared_ptr<const Classes> classes;
    int64_t rows, features, planes, scores;  // scores: columns of the output, twice the planes where one tells two classes

    LinearClassifierRun(std::shared_ptr<const Classes> c, int64_t n, int64_t f, int64_t p, int64_t s)
        : classes(std::move(c)), rows(n), features(f), planes(p), scores(s) {}

    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        visit<FeatureTypes>(in[0].dtype(), [&](auto t) {
            const auto* x = in[0].as<decltype(t)>();
            parallel_ranges(context.threads, rows, row_grain(features * planes), [&](int64_t begin, int64_t end) {
                for (int64_t r = begin; r < end; ++r) {
                    float* y = out[1].as<float>() + r * scores;
                    for (int64_t p = 0; p < planes; ++p) y[p] = distance(x + r * features, p);
                    if (scores > planes) y[1] = y[0], y[0] = -y[0];
                    classes->transform(y, scores);
                    out[0].as<int64_t>()[r] = label(y);
                }
            });
        });
    }

  private:
    template <class T> float distance(const T* row, int64_t plane) const {
        const double* w = classes->coefficients.data() + plane * features;
        double sum = 0;
        for (int64_t i = 0; i < features; ++i) sum += static_cast<double>(row[i]) * w[i];
        if (classes->intercepts.empty()) return static_cast<float>(sum);
        return static_cast<float>(sum + classes->intercepts[classes->intercepts.size() == 1 ? 0 : static_cast<size_t>(plane)]);
    }
    int64_t label(const float* y) const {
        if (scores == 1) return y[0] >= classes->threshold ? (classes->labels.empty() ? 1 : classes->labels[0]) : 0;
        const int64_t best = std::max_element(y, y + scores) - y;
        return classes->labels.empty() ? best : classes->labels[static_cast<size_t>(best)];
    }
};

class LinearClassifier final : public Kernel {
  public:
    explicit LinearClassifier(const NodeSpec& s) {
        if (!s.attrs.texts("classlabels_strings").empty()) throw Unsupported("no native kernel for labels that are strings");
        const std::string transform = s.attrs.text("post_transform", "NONE");
        c_ = std::make_shared<const Classes>(Classes{s.attrs.reals("coefficients"), s.attrs.reals("intercepts"), s.attrs.integers("classlabels_ints"),
              transform_of(transform), transform == "NONE" ? 0.0f : 0.5f});
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        expect_matrix(in[0]);
        const Shape& x = in[0].shape();
        const int64_t rows = x.rank == 2 ? x[0] : 1, features = x.back(), weights = static_cast<int64_t>(c_->coefficients.size());
        // Intercepts tell the rows where there are several; coefficients that are left over are not used, as in the reference.
        const int64_t offsets = static_cast<int64_t>(c_->intercepts.size()), labels = static_cast<int64_t>(c_->labels.size());
        const bool fits = features > 0 && weights > 0 && (offsets > 1 ? weights / features >= offsets : weights % features == 0);
        if (!fits) throw BadOperand(std::to_string(weights) + " coefficients for an input of shape " + x.str());
        const int64_t planes = offsets > 1 ? offsets : weights / features;
        const int64_t scores = planes == 1 && labels == 2 ? 2 : planes;
        if (labels != 0 && labels != scores)
            throw BadOperand(std::to_string(labels) + " labels for " + std::to_string(scores) + " classes");
        out[0] = {DType::I64, {rows}};
        out[1] = {DType::F32, {rows, scores}};
        auto run = std::make_unique<LinearClassifierRun>(c_, rows, features, planes, scores);
        run->flops = 2.0 * static_cast<double>(rows) * static_cast<double>(planes * features);
        return run;
    }

  private:
    std::shared_ptr<const Classes> c_;
};

template <class K> Factory over_features(size_t outputs) {
    return [outputs](const NodeSpec& s) -> std::unique_ptr<Kernel> {
        if (!s.has_input(0)) throw BadOperand("the input is missing");
        for (size_t i = 0; i < outputs; ++i)
            if (!s.has_output(i)) throw Unsupported("no native kernel without every output");
        visit<FeatureTypes>(s.inputs[0].dtype, [](auto) {});
        return std::make_unique<K>(s);
    };
}

}  // namespace

void register_ml(Registry& r) {
    r.add("Scaler", over_features<Scaler>(1), "ai.onnx.ml");
    r.add("Normalizer", over_features<Normalizer>(1), "ai.onnx.ml");
    r.add("LinearClassifier", over_features<LinearClassifier>(2), "ai.onnx.ml");
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
