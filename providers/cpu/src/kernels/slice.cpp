// Slice: one strided copy. https://onnx.ai/onnx/operators/onnx__Slice.html
#include "kernels/strided.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

// The positions a slice takes of one dimension.
struct Cut { int64_t first, length, step; };

// Negative bounds count from the end, and both are brought into the dimension. Unlike Python's, a backward slice that
// starts before the dimension takes its first position.
Cut cut(int64_t start, int64_t end, int64_t step, int64_t extent) {
    if (step == 0) throw BadOperand("a step of 0");
    const bool forward = step > 0;
    if (extent == 0) return {0, 0, 1};
    const int64_t high = forward ? extent : extent - 1;
    auto inside = [&](int64_t bound, int64_t low) { return std::clamp(bound < 0 ? bound + extent : bound, low, high); };
    const int64_t from = inside(start, 0), to = inside(end, forward ? 0 : -1), span = forward ? to - from : from - to;
    if (span <= 0) return {0, 0, 1};
    // Beyond the extent, every step takes the first position only; this also keeps INT64_MIN from being negated.
    const int64_t stride = std::clamp(step, -extent, extent), size = forward ? stride : -stride;
    return {from, (span + size - 1) / size, stride};
}

int64_t integer_at(const Tensor& t, int64_t i) {
    return t.dtype() == DType::I32 ? t.as<int32_t>()[i] : t.as<int64_t>()[i];
}

class Slice final : public Kernel {
  public:
    explicit Slice(const NodeSpec& s) : axes_(s.has_input(3)), steps_(s.has_input(4)) {
        if (!s.has_input(1) || !s.has_input(2)) throw BadOperand("starts and ends are required");
    }
    uint32_t value_inputs() const override { return 6u | (axes_ ? 8u : 0) | (steps_ ? 16u : 0); }

    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape& shape = in[0].shape();
        const int64_t count = in[1].count();
        for (int i = 1; i < 5; ++i) {
            if ((i == 3 && !axes_) || (i == 4 && !steps_)) continue;
            expect_index_type(in[i]);
            if (in[i].count() != count) throw BadOperand("starts, ends, axes and steps differ in length");
        }
        if (count > shape.rank) throw BadOperand("more bounds than dimensions of " + shape.str());
        Cut cuts[kMaxRank];
        for (int i = 0; i < shape.rank; ++i) cuts[i] = {0, shape[i], 1};
        AxisSet seen;
        for (int64_t i = 0; i < count; ++i) {
            const int64_t axis = axes_ ? integer_at(in[3], i) : i;
            seen.add(axis, shape.rank);
            const int a = checked_axis(axis, shape.rank);
            cuts[a] = cut(integer_at(in[1], i), integer_at(in[2], i), steps_ ? integer_at(in[4], i) : 1, shape[a]);
        }
        return copy_of(in[0], cuts, out[0]);
    }

  private:
    static std::unique_ptr<Prepared> copy_of(const Tensor& data, const Cut* cuts, TensorDesc& out) {
        const Shape& shape = data.shape();
        out = {data.dtype(), shape};
        for (int i = 0; i < shape.rank; ++i) out.shape[i] = cuts[i].length;
        std::vector<StridedDim> dims;
        int64_t first = 0;
        for (int i = 0; i < shape.rank; ++i) {
            const int64_t stride = shape.count(i + 1);
            first += cuts[i].first * stride;
            dims.push_back({cuts[i].length, cuts[i].step * stride, out.shape.count(i + 1)});
        }
        return std::make_unique<StridedRun>(size_of(data.dtype()), dims, first);
    }

    bool axes_, steps_;
};

}  // namespace

void register_slice(Registry& r) {
    r.add("Slice", [](const NodeSpec& s) -> std::unique_ptr<Kernel> {
        expect_bytes(s);
        return std::make_unique<Slice>(s);
    });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
