// Unique (https://onnx.ai/onnx/operators/onnx__Unique.html): the slices along an axis, or all elements, without
// repetitions. The output's shape depends on the data, so everything but copying happens in prepare(). NaNs are equal.
#include <algorithm>
#include <numeric>

#include "kernels/axes.h"
#include "kernels/dtypes.h"
#include "kernels/order.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

// Element (o, i, c) of Lanes belongs to slice i.
struct Groups {
    std::vector<int64_t> first, inverse, count;  // by slice of Y, by slice of X, by slice of Y
};

template <class T> class Grouping {
    using K = key_t<T>;

  public:
    Grouping(const T* x, const Lanes& lanes) : slices_(lanes.length), width_(lanes.outer * lanes.inner), keys_(static_cast<size_t>(slices_ * width_)) {
        for (int64_t o = 0; o < lanes.outer; ++o)
            for (int64_t i = 0; i < slices_; ++i)
                for (int64_t c = 0; c < lanes.inner; ++c)
                    keys_[static_cast<size_t>(i * width_ + o * lanes.inner + c)] = order_key(x[(o * slices_ + i) * lanes.inner + c]);
    }
    Groups find(bool sorted) const {
        std::vector<int64_t> order(static_cast<size_t>(slices_));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return std::lexicographical_compare(slice(a), slice(a + 1), slice(b), slice(b + 1)); });
        Groups g;
        g.inverse.resize(order.size());
        for (size_t i = 0; i < order.size(); ++i) {
            if (i == 0 || !std::equal(slice(order[i]), slice(order[i] + 1), slice(order[i - 1]))) {
                g.first.push_back(order[i]);
                g.count.push_back(0);
            }
            ++g.count.back();
            g.inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(g.first.size()) - 1;
        }
        return sorted ? g : by_occurrence(g);
    }

  private:
    const K* slice(int64_t i) const { return keys_.data() + i * width_; }
    static Groups by_occurrence(const Groups& g) {
        std::vector<int64_t> order(g.first.size()), rank(g.first.size());
        std::iota(order.begin(), order.end(), 0);
        std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return g.first[static_cast<size_t>(a)] < g.first[static_cast<size_t>(b)]; });
        Groups result;
        for (int64_t from : order) {
            rank[static_cast<size_t>(from)] = static_cast<int64_t>(result.first.size());
            result.first.push_back(g.first[static_cast<size_t>(from)]);
            result.count.push_back(g.count[static_cast<size_t>(from)]);
        }
        for (int64_t i : g.inverse) result.inverse.push_back(rank[static_cast<size_t>(i)]);
        return result;
    }
    int64_t slices_, width_;
    std::vector<K> keys_;
};

template <class T> class RunUnique final : public Prepared {
  public:
    RunUnique(Groups groups, const Lanes& lanes, int outputs) : groups_(std::move(groups)), lanes_(lanes), outputs_(outputs) {}
    void run(const Context&, const Tensor* in, const Tensor* out) const override {
        if (out[0].present()) copy(in[0].as<T>(), out[0].as<T>());
        const std::vector<int64_t>* lists[] = {&groups_.first, &groups_.inverse, &groups_.count};
        for (int k = 1; k < outputs_; ++k)
            if (out[k].present()) std::copy(lists[k - 1]->begin(), lists[k - 1]->end(), out[k].as<int64_t>());
    }

  private:
    void copy(const T* x, T* y) const {
        for (int64_t o = 0; o < lanes_.outer; ++o)
            for (int64_t i : groups_.first) {
                const T* from = x + (o * lanes_.length + i) * lanes_.inner;
                y = std::copy(from, from + lanes_.inner, y);
            }
    }
    Groups groups_;
    Lanes lanes_;
    int outputs_;
};

class Unique final : public Kernel {
  public:
    explicit Unique(const NodeSpec& spec)
        : flat_(!spec.attrs.has("axis")), sorted_(spec.attrs.integer("sorted", 1) != 0), axis_(spec.attrs.integer("axis", 0)),
          outputs_(static_cast<int>(std::min<size_t>(spec.outputs.size(), 4))) {
        if (!spec.has_input(0)) throw Unsupported("the first input is missing");
        visit<NumberTypes>(spec.inputs[0].dtype, [](auto) {});
        for (size_t i = 0; i < 4; ++i) wanted_[i] = spec.has_output(i);
    }
    uint32_t value_inputs() const override { return 1; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape all{in[0].count()};
        Shape s = flat_ ? all : in[0].shape();
        const int axis = checked_axis(axis_, s.rank);
        const Lanes lanes(s, axis);
        return visit<NumberTypes>(in[0].dtype(), [&](auto t) -> std::unique_ptr<Prepared> {
            using T = decltype(t);
            Groups g = Grouping<T>(in[0].as<T>(), lanes).find(sorted_);
            const int64_t found = static_cast<int64_t>(g.first.size());
            s[axis] = found;
            const TensorDesc descs[] = {{in[0].dtype(), s}, {DType::I64, {found}}, {DType::I64, {lanes.length}}, {DType::I64, {found}}};
            for (int i = 0; i < outputs_; ++i)
                if (wanted_[i]) out[i] = descs[i];
            return std::make_unique<RunUnique<T>>(std::move(g), lanes, outputs_);
        });
    }

  private:
    bool flat_, sorted_, wanted_[4];
    int64_t axis_;
    int outputs_;
};

}  // namespace

void register_unique(Registry& r) {
    r.add("Unique", [](const NodeSpec& s) { return std::make_unique<Unique>(s); });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
