// Decision trees as one array of nodes, whichever way a model lists them. Trees are checked when they are built: every
// branch leads somewhere, and to a leaf in the end. Thresholds are float64, in which every input type is exact.
#pragma once

#include <vector>

#include "core/kernel.h"

namespace opweave {
namespace OPWEAVE_ISA {

// In the order of TreeEnsemble's nodes_modes.
enum class Branch : uint8_t { Leq, Lt, Gte, Gt, Eq, Neq, Member };
enum class Aggregate { Average, Sum, Min, Max };
enum class Transform { None, Softmax, Logistic, SoftmaxZero };

struct TreeNode {
    double threshold = 0;
    int32_t feature = 0;
    int32_t yes = 0, no = 0;  // a node, or the complement of a leaf
    int32_t set = 0;          // of Forest::sets, for Branch::Member
    Branch mode = Branch::Leq;
    bool missing = false;     // NaN takes `yes`
};
struct Vote {
    int32_t target;
    double weight;
};
struct Leaf {
    size_t first = 0, count = 0;  // of Forest::votes
};

struct Forest {
    std::vector<TreeNode> nodes;
    std::vector<Leaf> leaves;
    std::vector<Vote> votes;
    std::vector<std::vector<double>> sets;  // sorted
    std::vector<int32_t> roots;             // as TreeNode::yes
    int32_t features = 0;                   // that rows must have at least
    int64_t targets = 0;

    // to[0:targets] and seen[0:targets] over all trees, for row x.
    void gather(const double* x, Aggregate aggregate, double* to, bool* seen) const;
};

// From the attributes nodes_*, and those of the leaves under `prefix`: "class_" or "target_".
Forest read_forest(const Attrs& attrs, const std::string& prefix, int64_t targets);
// From those of TreeEnsemble.
Forest read_tree_ensemble(const Attrs& attrs);

Transform transform_named(const std::string& name);  // throws Unsupported
// In place, over n scores.
void transform_scores(Transform transform, double* scores, int64_t n);

}  // namespace OPWEAVE_ISA
}  // namespace opweave
