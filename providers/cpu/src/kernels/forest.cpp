// Building and walking of decision trees. No operator is registered here.
#include "kernels/forest.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/dtypes.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

bool holds(const Forest& forest, const TreeNode& n, double x) {
    if (x != x) return n.missing;
    switch (n.mode) {
        case Branch::Leq: return x <= n.threshold;
        case Branch::Lt: return x < n.threshold;
        case Branch::Gte: return x >= n.threshold;
        case Branch::Gt: return x > n.threshold;
        case Branch::Eq: return x == n.threshold;
        case Branch::Neq: return x != n.threshold;
        case Branch::Member: break;
    }
    const std::vector<double>& set = forest.sets[static_cast<size_t>(n.set)];
    return std::binary_search(set.begin(), set.end(), x);
}

const Leaf& leaf_of(const Forest& forest, int32_t at, const double* x) {
    while (at >= 0) {
        const TreeNode& n = forest.nodes[static_cast<size_t>(at)];
        at = holds(forest, n, x[n.feature]) ? n.yes : n.no;
    }
    return forest.leaves[static_cast<size_t>(~at)];
}

// A list of numbers, given as an attribute or as a tensor.
std::vector<double> numbers(const Attrs& attrs, const std::string& name) {
    const Tensor* t = attrs.tensor(name + "_as_tensor");
    if (!t) t = attrs.tensor(name);
    if (!t) return attrs.reals(name);
    std::vector<double> list(static_cast<size_t>(t->count()));
    read_reals(t->dtype(), t->data, 0, list.data(), t->count());
    return list;
}
void same_length(size_t n, size_t wanted, const std::string& name) {
    if (n != wanted) throw BadOperand(name + " has " + std::to_string(n) + " entries, expected " + std::to_string(wanted));
}
int32_t small(int64_t x, int64_t limit, const char* what) {
    if (x < 0 || x >= limit) throw BadOperand(std::string(what) + " " + std::to_string(x) + " is outside [0, " + std::to_string(limit) + ")");
    return static_cast<int32_t>(x);
}
constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

Branch branch_named(const std::string& name) {
    static const char* const names[] = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"};
    for (int i = 0; i < 6; ++i)
        if (name == names[i]) return static_cast<Branch>(i);
    throw Unsupported("the node mode '" + name + "'");
}

// Throws when a walk could run in circles: a node is met again before its subtree is done.
void check_ends(const Forest& forest) {
    std::vector<uint8_t> state(forest.nodes.size());  // 1: on the way down, 2: done
    std::vector<int32_t> path;
    const auto enter = [&](int32_t at) {
        if (at < 0 || state[static_cast<size_t>(at)] == 2) return;
        if (state[static_cast<size_t>(at)] == 1) throw BadOperand("the trees run in circles");
        path.push_back(at);
    };
    for (int32_t root : forest.roots) {
        enter(root);
        while (!path.empty()) {
            const int32_t at = path.back();
            uint8_t& s = state[static_cast<size_t>(at)];
            if (s != 0) {
                s = 2;
                path.pop_back();
                continue;
            }
            s = 1;
            enter(forest.nodes[static_cast<size_t>(at)].yes);
            enter(forest.nodes[static_cast<size_t>(at)].no);
        }
    }
}

// Nodes are named by a tree and a number.
using NodeName = std::pair<int64_t, int64_t>;
using NodeIndex = std::map<NodeName, int32_t>;  // to the index, as TreeNode::yes

class ListedForest {
  public:
    ListedForest(const Attrs& attrs, const std::string& prefix, int64_t targets) : attrs_(attrs), prefix_(prefix) { forest_.targets = targets; }
    Forest read() {
        small(forest_.targets - 1, kMost, "the last target");
        trees_ = attrs_.integers("nodes_treeids");
        ids_ = attrs_.integers("nodes_nodeids");
        modes_ = attrs_.texts("nodes_modes");
        same_length(ids_.size(), trees_.size(), "nodes_nodeids");
        same_length(modes_.size(), trees_.size(), "nodes_modes");
        if (trees_.size() >= static_cast<size_t>(kMost)) throw Unsupported("more than 2^31 nodes");
        index();
        branches();
        votes();
        check_ends(forest_);
        return std::move(forest_);
    }

  private:
    void index() {
        int32_t nodes = 0, leaves = 0;
        std::map<int64_t, int32_t> roots;
        for (size_t i = 0; i < trees_.size(); ++i) {
            const int32_t at = modes_[i] == "LEAF" ? ~leaves++ : nodes++;
            places_.emplace(NodeName{trees_[i], ids_[i]}, at);
            roots.emplace(trees_[i], at);
        }
        for (const auto& root : roots) forest_.roots.push_back(root.second);
        forest_.nodes.resize(static_cast<size_t>(nodes));
        forest_.leaves.resize(static_cast<size_t>(leaves));
    }
    int32_t place(int64_t tree, int64_t id) const {
        const auto it = places_.find({tree, id});
        if (it == places_.end()) throw BadOperand("tree " + std::to_string(tree) + " has no node " + std::to_string(id));
        return it->second;
    }
    void branches() {
        const auto features = attrs_.integers("nodes_featureids"), yes = attrs_.integers("nodes_truenodeids"), no = attrs_.integers("nodes_falsenodeids");
        const auto missing = attrs_.integers("nodes_missing_value_tracks_true");
        const auto values = numbers(attrs_, "nodes_values");
        for (const auto* list : {&features, &yes, &no}) same_length(list->size(), trees_.size(), "an attribute of the nodes");
        same_length(values.size(), trees_.size(), "nodes_values");
        if (!missing.empty()) same_length(missing.size(), trees_.size(), "nodes_missing_value_tracks_true");
        size_t at = 0;
        for (size_t i = 0; i < trees_.size(); ++i) {
            if (modes_[i] == "LEAF") continue;
            TreeNode& n = forest_.nodes[at++];
            n.mode = branch_named(modes_[i]);
            n.threshold = values[i];
            n.feature = small(features[i], kMost, "feature");
            n.yes = place(trees_[i], yes[i]);
            n.no = place(trees_[i], no[i]);
            n.missing = !missing.empty() && missing[i] != 0;
            forest_.features = std::max(forest_.features, n.feature + 1);
        }
    }
    void votes() {
        const auto trees = attrs_.integers(prefix_ + "treeids"), nodes = attrs_.integers(prefix_ + "nodeids"), targets = attrs_.integers(prefix_ + "ids");
        const auto weights = numbers(attrs_, prefix_ + "weights");
        for (const auto* list : {&nodes, &targets}) same_length(list->size(), trees.size(), "an attribute of the leaves");
        same_length(weights.size(), trees.size(), prefix_ + "weights");
        std::vector<std::vector<Vote>> by_leaf(forest_.leaves.size());
        for (size_t i = 0; i < trees.size(); ++i) {
            const int32_t at = place(trees[i], nodes[i]);
            if (at < 0) by_leaf[static_cast<size_t>(~at)].push_back({small(targets[i], forest_.targets, "target"), weights[i]});
        }
        for (size_t i = 0; i < by_leaf.size(); ++i) {
            forest_.leaves[i] = {forest_.votes.size(), by_leaf[i].size()};
            forest_.votes.insert(forest_.votes.end(), by_leaf[i].begin(), by_leaf[i].end());
        }
    }
    const Attrs& attrs_;
    std::string prefix_;
    std::vector<int64_t> trees_, ids_;
    std::vector<std::string> modes_;
    NodeIndex places_;
    Forest forest_;
};

// Sets of members, each ended by NaN.
std::vector<std::vector<double>> split_sets(const std::vector<double>& values) {
    std::vector<std::vector<double>> sets(1);
    for (double v : values) {
        if (v == v) sets.back().push_back(v);
        else sets.emplace_back();
    }
    for (auto& set : sets) std::sort(set.begin(), set.end());
    return sets;
}

}  // namespace

void Forest::gather(const double* x, Aggregate aggregate, double* to, bool* seen) const {
    std::fill(to, to + targets, 0.0);
    std::fill(seen, seen + targets, false);
    for (int32_t root : roots) {
        const Leaf& leaf = leaf_of(*this, root, x);
        for (size_t i = leaf.first; i < leaf.first + leaf.count; ++i) {
            const Vote& v = votes[i];
            double& y = to[v.target];
            if (aggregate == Aggregate::Min) y = seen[v.target] ? std::min(y, v.weight) : v.weight;
            else if (aggregate == Aggregate::Max) y = seen[v.target] ? std::max(y, v.weight) : v.weight;
            else y += v.weight;
            seen[v.target] = true;
        }
    }
    if (aggregate == Aggregate::Average)
        for (int64_t i = 0; i < targets; ++i) to[i] /= static_cast<double>(std::max<size_t>(1, roots.size()));
}

Forest read_forest(const Attrs& attrs, const std::string& prefix, int64_t targets) { return ListedForest(attrs, prefix, targets).read(); }

Forest read_tree_ensemble(const Attrs& attrs) {
    Forest forest;
    forest.targets = attrs.integer("n_targets", 1);
    small(forest.targets - 1, kMost, "the last target");
    const Tensor* modes = attrs.tensor("nodes_modes");
    if (!modes || modes->dtype() != DType::U8) throw Unsupported("nodes_modes is missing or not uint8");
    const auto features = attrs.integers("nodes_featureids"), yes = attrs.integers("nodes_truenodeids"), no = attrs.integers("nodes_falsenodeids");
    const auto yes_leaf = attrs.integers("nodes_trueleafs"), no_leaf = attrs.integers("nodes_falseleafs"), missing = attrs.integers("nodes_missing_value_tracks_true");
    const auto splits = numbers(attrs, "nodes_splits"), weights = numbers(attrs, "leaf_weights");
    const auto targets = attrs.integers("leaf_targetids");
    const size_t n = static_cast<size_t>(modes->count());
    for (const auto* list : {&features, &yes, &no, &yes_leaf, &no_leaf}) same_length(list->size(), n, "an attribute of the nodes");
    same_length(splits.size(), n, "nodes_splits");
    if (!missing.empty()) same_length(missing.size(), n, "nodes_missing_value_tracks_true");
    same_length(targets.size(), weights.size(), "leaf_targetids");
    forest.sets = split_sets(numbers(attrs, "membership_values"));
    const int64_t nodes = std::min(kMost, static_cast<int64_t>(n)), leaves = std::min(kMost, static_cast<int64_t>(weights.size()));
    const auto place = [&](bool leaf, int64_t at) { return leaf ? ~small(at, leaves, "leaf") : small(at, nodes, "node"); };
    int64_t sets = 0;
    for (size_t i = 0; i < n; ++i) {
        TreeNode t;
        t.mode = static_cast<Branch>(small(modes->as<uint8_t>()[i], 7, "node mode"));
        t.threshold = splits[i];
        t.feature = small(features[i], kMost, "feature");
        t.yes = place(yes_leaf[i] != 0, yes[i]);
        t.no = place(no_leaf[i] != 0, no[i]);
        t.missing = !missing.empty() && missing[i] != 0;
        if (t.mode == Branch::Member) t.set = small(sets++, static_cast<int64_t>(forest.sets.size()), "set of members");
        forest.features = std::max(forest.features, t.feature + 1);
        forest.nodes.push_back(t);
    }
    for (size_t i = 0; i < weights.size(); ++i) {
        forest.leaves.push_back({i, 1});
        forest.votes.push_back({small(targets[i], forest.targets, "target"), weights[i]});
    }
    for (int64_t root : attrs.integers("tree_roots")) forest.roots.push_back(small(root, nodes, "root"));
    check_ends(forest);
    return forest;
}

Transform transform_named(const std::string& name) {
    if (name == "NONE") return Transform::None;
    if (name == "SOFTMAX") return Transform::Softmax;
    if (name == "LOGISTIC") return Transform::Logistic;
    if (name == "SOFTMAX_ZERO") return Transform::SoftmaxZero;
    throw Unsupported("the transform '" + name + "'");
}

void transform_scores(Transform transform, double* scores, int64_t n) {
    if (transform == Transform::None || n == 0) return;
    if (transform == Transform::Logistic) {
        for (int64_t i = 0; i < n; ++i) scores[i] = 1 / (1 + std::exp(-scores[i]));
        return;
    }
    const double most = *std::max_element(scores, scores + n);
    double total = 0;
    for (int64_t i = 0; i < n; ++i) {
        const bool zero = transform == Transform::SoftmaxZero && std::abs(scores[i]) <= 1e-7;
        scores[i] = zero ? scores[i] * std::exp(-most) : std::exp(scores[i] - most);
        total += scores[i];
    }
    for (int64_t i = 0; i < n; ++i) scores[i] = total == 0 ? 0.5 : scores[i] / total;
}

void register_forest(Registry&) {}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
