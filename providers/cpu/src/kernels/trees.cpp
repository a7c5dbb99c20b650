// TreeEnsemble, TreeEnsembleRegressor, TreeEnsembleClassifier of ai.onnx.ml
// (https://onnx.ai/onnx/operators/#ai-onnx-ml). Scores are summed in float64. What ONNX leaves open about classifiers with
// one column of scores stays with the reference implementation.
#include <algorithm>

#include "kernels/dtypes.h"
#include "kernels/forest.h"
#include "kernels/rows.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

struct TreeSpec {
    std::shared_ptr<const Forest> forest;
    Aggregate aggregate = Aggregate::Sum;
    Transform transform = Transform::None;
    std::vector<double> base;     // per target, or empty
    std::vector<int64_t> labels;  // of a classifier
    bool binary = false;          // the only score is that of the second of two classes
    int64_t columns() const { return binary ? 2 : forest->targets; }
};

class RunTrees final : public Prepared {
  public:
    RunTrees(const TreeSpec& spec, int64_t rows, int64_t width, const bool* wanted) : spec_(spec), rows_(rows), width_(width), wanted_{wanted[0], wanted[1]} {
        flops = static_cast<double>(rows) * static_cast<double>(spec.forest->roots.size()) * 8;
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const size_t trees = spec_.forest->roots.size();
        parallel_ranges(context.threads, rows_, 1 + static_cast<int64_t>(2048 / (1 + trees)), [&](int64_t begin, int64_t end) {
            std::vector<double> x(static_cast<size_t>(width_)), scores(static_cast<size_t>(std::max<int64_t>(2, spec_.forest->targets)));
            const auto seen = std::make_unique<bool[]>(scores.size());
            for (int64_t i = begin; i < end; ++i) {
                read_numbers(in[0], i * width_, x.data(), width_);
                spec_.forest->gather(x.data(), spec_.aggregate, scores.data(), seen.get());
                finish(scores.data(), i, out);
            }
        });
    }

  private:
    void finish(double* scores, int64_t row, const Tensor* out) const {
        const int64_t n = spec_.columns();
        for (size_t i = 0; i < spec_.base.size(); ++i) scores[i] += spec_.base[i];
        if (spec_.binary) {
            scores[1] = scores[0];
            scores[0] = spec_.transform == Transform::None ? 1 - scores[1] : -scores[1];
        }
        const bool classify = !spec_.labels.empty();
        transform_scores(spec_.transform, scores, n);
        if (classify && wanted_[0])
            out[0].as<int64_t>()[row] = spec_.labels[static_cast<size_t>(std::max_element(scores, scores + n) - scores)];
        const int at = classify ? 1 : 0;
        if (wanted_[at]) write_reals(out[at].dtype(), scores, out[at].data, row * n, n);
    }
    TreeSpec spec_;
    int64_t rows_, width_;
    bool wanted_[2];
};

class Trees final : public Kernel {
  public:
    Trees(const NodeSpec& s, TreeSpec spec) : spec_(std::move(spec)) {
        if (!s.has_input(0)) throw Unsupported("the input is missing");
        expect_numbers(s.inputs[0].dtype);
        for (size_t i = 0; i < 2; ++i) wanted_[i] = s.has_output(i);
        score_ = s.op == "TreeEnsemble" ? s.inputs[0].dtype : DType::F32;
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const RowsOf x(in[0].shape());
        if (x.width < spec_.forest->features)
            throw BadOperand("rows of " + std::to_string(x.width) + " features, the trees ask for " + std::to_string(spec_.forest->features));
        const bool classify = !spec_.labels.empty();
        if (classify && wanted_[0]) out[0] = {DType::I64, {x.rows}};
        const int at = classify ? 1 : 0;
        if (wanted_[at]) out[at] = {score_, {x.rows, spec_.columns()}};
        return std::make_unique<RunTrees>(spec_, x.rows, x.width, wanted_);
    }

  private:
    TreeSpec spec_;
    bool wanted_[2];
    DType score_;
};

std::vector<double> base_values(const Attrs& attrs) {
    const Tensor* t = attrs.tensor("base_values_as_tensor");
    if (!t) return attrs.reals("base_values");
    std::vector<double> list(static_cast<size_t>(t->count()));
    read_reals(t->dtype(), t->data, 0, list.data(), t->count());
    return list;
}
// One value for all targets, or one for each.
void set_base(TreeSpec& spec, std::vector<double> base) {
    const size_t targets = static_cast<size_t>(spec.forest->targets);
    if (base.size() == 1) base.assign(targets, base[0]);
    if (!base.empty() && base.size() != targets) throw BadOperand("base_values has " + std::to_string(base.size()) + " entries for " + std::to_string(targets) + " targets");
    spec.base = std::move(base);
}

std::unique_ptr<Kernel> make_ensemble(const NodeSpec& s) {
    if (s.has_input(0)) visit<FloatTypes>(s.inputs[0].dtype, [](auto) {});
    TreeSpec spec;
    spec.forest = std::make_shared<const Forest>(read_tree_ensemble(s.attrs));
    const int64_t aggregate = s.attrs.integer("aggregate_function", 1), transform = s.attrs.integer("post_transform", 0);
    if (aggregate < 0 || aggregate > 3 || transform < 0 || transform > 3) throw Unsupported("the aggregate function or the transform");
    spec.aggregate = static_cast<Aggregate>(aggregate);
    spec.transform = static_cast<Transform>(transform);
    return std::make_unique<Trees>(s, std::move(spec));
}

std::unique_ptr<Kernel> make_regressor(const NodeSpec& s) {
    static const char* const names[] = {"AVERAGE", "SUM", "MIN", "MAX"};
    TreeSpec spec;
    spec.forest = std::make_shared<const Forest>(read_forest(s.attrs, "target_", s.attrs.integer("n_targets", 1)));
    const std::string aggregate = s.attrs.text("aggregate_function", "SUM");
    const auto found = std::find(std::begin(names), std::end(names), aggregate);
    if (found == std::end(names)) throw Unsupported("the aggregate function '" + aggregate + "'");
    spec.aggregate = static_cast<Aggregate>(found - std::begin(names));
    spec.transform = transform_named(s.attrs.text("post_transform", "NONE"));
    set_base(spec, base_values(s.attrs));
    return std::make_unique<Trees>(s, std::move(spec));
}

bool all_votes_for(const Forest& forest, int32_t target) {
    return std::all_of(forest.votes.begin(), forest.votes.end(), [&](const Vote& v) { return v.target == target; });
}

std::unique_ptr<Kernel> make_classifier(const NodeSpec& s) {
    TreeSpec spec;
    spec.labels = s.attrs.integers("classlabels_int64s");
    if (spec.labels.size() < 2) throw Unsupported("labels that are strings, or a single one");
    spec.transform = transform_named(s.attrs.text("post_transform", "NONE"));
    std::vector<double> base = base_values(s.attrs);
    Forest forest = read_forest(s.attrs, "class_", static_cast<int64_t>(spec.labels.size()));
    const std::vector<int64_t> ids = s.attrs.integers("class_ids");
    const bool single = !ids.empty() && std::all_of(ids.begin(), ids.end(), [&](int64_t id) { return id == ids[0]; });
    if (single) {
        const bool positive = std::all_of(forest.votes.begin(), forest.votes.end(), [](const Vote& v) { return v.weight >= 0; });
        const bool clear = spec.transform == Transform::Logistic || (spec.transform == Transform::None && positive);
        if (spec.labels.size() != 2 || !all_votes_for(forest, 0) || !clear || base.size() > 1) throw Unsupported("one column of scores for such classes");
        forest.targets = 1;
        spec.binary = true;
    }
    spec.forest = std::make_shared<const Forest>(std::move(forest));
    set_base(spec, std::move(base));
    return std::make_unique<Trees>(s, std::move(spec));
}

}  // namespace

void register_trees(Registry& r) {
    r.add("TreeEnsemble", make_ensemble, "ai.onnx.ml");
    r.add("TreeEnsembleRegressor", make_regressor, "ai.onnx.ml");
    r.add("TreeEnsembleClassifier", make_classifier, "ai.onnx.ml");
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
