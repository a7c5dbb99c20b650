// TopK (https://onnx.ai/onnx/operators/onnx__TopK.html), always sorted; the lower index first among equal elements. Key
// and position make one number where they fit into 64 bits, so selection compares plain integers.
#include <algorithm>
#include <functional>

#include "kernels/axes.h"
#include "kernels/dtypes.h"
#include "kernels/order.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

struct WideEntry {
    uint64_t key;
    uint64_t place;  // the complement of the index
    bool operator>(const WideEntry& o) const { return key != o.key ? key > o.key : place > o.place; }
    uint64_t index() const { return ~place; }
};
struct NarrowEntry {
    uint64_t bits;
    bool operator>(const NarrowEntry& o) const { return bits > o.bits; }
    uint64_t index() const { return ~static_cast<uint32_t>(bits) & 0xffffffffu; }
};
inline WideEntry entry(uint64_t key, int64_t i) { return {key, ~static_cast<uint64_t>(i)}; }
inline NarrowEntry entry(uint32_t key, int64_t i) { return {static_cast<uint64_t>(key) << 32 | (~static_cast<uint32_t>(i) & 0xffffffffu)}; }

template <class T> class RunTopK final : public Prepared {
    using Entry = decltype(entry(key_t<T>{}, 0));

  public:
    RunTopK(const Lanes& lanes, int64_t k, bool largest, const bool* wanted) : lanes_(lanes), k_(k), largest_(largest), wanted_{wanted[0], wanted[1]} {
        flops = static_cast<double>(lanes.outer * lanes.inner) * static_cast<double>(lanes.length);
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        if (k_ == 0 || lanes_.outer * lanes_.inner == 0) return;
        parallel_ranges(context.threads, lanes_.outer * lanes_.inner, 1 + (1 << 13) / lanes_.length, [&](int64_t begin, int64_t end) {
            std::vector<Entry> entries;
            for (int64_t i = begin; i < end; ++i) lane(i, entries, in[0].as<T>(), out);
        });
    }

  private:
    void lane(int64_t i, std::vector<Entry>& entries, const T* data, const Tensor* out) const {
        const int64_t o = i / lanes_.inner, c = i % lanes_.inner, stride = lanes_.inner;
        const T* x = data + o * lanes_.length * stride + c;
        select(x, entries);
        const int64_t at = o * k_ * stride + c;
        for (int64_t j = 0; j < k_; ++j) {
            const int64_t index = static_cast<int64_t>(entries[static_cast<size_t>(j)].index());
            if (wanted_[0]) out[0].as<T>()[at + j * stride] = x[index * stride];
            if (wanted_[1]) out[1].as<int64_t>()[at + j * stride] = index;
        }
    }
    // The best k entries, in order. What cannot be among them any more is never stored.
    void select(const T* x, std::vector<Entry>& entries) const {
        const size_t room = std::max<size_t>(2 * static_cast<size_t>(k_), 256);
        entries.clear();
        Entry least = entry(key_t<T>{}, 0);
        bool full = false;
        for (int64_t j = 0; j < lanes_.length; ++j) {
            const key_t<T> key = order_key(x[j * lanes_.inner]);
            const Entry e = entry(largest_ ? key : static_cast<key_t<T>>(~key), j);
            if (full && !(e > least)) continue;
            entries.push_back(e);
            if (entries.size() < room) continue;
            least = cut(entries);
            full = true;
        }
        cut(entries);
        std::sort(entries.begin(), entries.end(), std::greater<>());
    }
    // Keeps the best k, returns the least of them.
    Entry cut(std::vector<Entry>& entries) const {
        const auto last = entries.begin() + k_ - 1;
        std::nth_element(entries.begin(), last, entries.end(), std::greater<>());
        const Entry least = *last;
        entries.resize(static_cast<size_t>(k_));
        return least;
    }
    Lanes lanes_;
    int64_t k_;
    bool largest_, wanted_[2];
};

class TopK final : public Kernel {
  public:
    explicit TopK(const NodeSpec& spec)
        : axis_(spec.attrs.integer("axis", -1)), largest_(spec.attrs.integer("largest", 1) != 0) {
        if (!spec.has_input(0) || !spec.has_input(1)) throw Unsupported("an input is missing");
        visit<NumberTypes>(spec.inputs[0].dtype, [](auto) {});
        for (size_t i = 0; i < 2; ++i) wanted_[i] = spec.has_output(i);
    }
    uint32_t value_inputs() const override { return 2; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        Shape s = in[0].shape();
        const int axis = checked_axis(axis_, s.rank);
        const Lanes lanes(s, axis);
        const int64_t k = scalar_int(in[1], "K");
        if (k < 0 || k > s[axis]) throw BadOperand("K is " + std::to_string(k) + ", axis " + std::to_string(axis) + " of " + s.str() + " has fewer elements");
        if (lanes.length > UINT32_MAX) throw BadOperand("an axis of more than 2^32 elements");
        s[axis] = k;
        if (wanted_[0]) out[0] = {in[0].dtype(), s};
        if (wanted_[1]) out[1] = {DType::I64, s};
        return visit<NumberTypes>(in[0].dtype(), [&](auto t) -> std::unique_ptr<Prepared> {
            return std::make_unique<RunTopK<decltype(t)>>(lanes, k, largest_, wanted_);
        });
    }

  private:
    int64_t axis_;
    bool largest_, wanted_[2];
};

}  // namespace

void register_topk(Registry& r) {
    r.add("TopK", [](const NodeSpec& s) { return std::make_unique<TopK>(s); });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
