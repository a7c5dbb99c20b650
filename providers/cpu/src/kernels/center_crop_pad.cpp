// CenterCropPad: the middle of the data lies in the middle of the output, zeros around it.
// https://onnx.ai/onnx/operators/onnx__CenterCropPad.html
#include "kernels/strided.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

struct CenterRun final : Prepared {
    StridedCopy copy;
    int64_t from, to;  // bytes
    bool fills;        // the data does not cover the output

    CenterRun(const StridedCopy& c, int64_t source, int64_t target, bool padded) : copy(c), from(source), to(target), fills(padded) {}
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        if (fills && out[0].count() != 0) std::memset(out[0].data, 0, out[0].desc.nbytes());
        copy.run(context.threads, in[0].as<char>() + from, out[0].as<char>() + to);
    }
};

class CenterCropPad final : public Kernel {
  public:
    explicit CenterCropPad(const NodeSpec& s) : all_(!s.attrs.has("axes")), axes_(s.attrs.integers("axes")) {
        if (!s.has_input(1)) throw BadOperand("the shape is missing");
    }
    uint32_t value_inputs() const override { return 2u; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape& data = in[0].shape();
        out[0] = {in[0].dtype(), wanted(data, in[1])};
        const Shape& target = out[0].shape;
        const int64_t element = static_cast<int64_t>(size_of(in[0].dtype()));
        std::vector<StridedDim> dims;
        int64_t from = 0, to = 0;
        bool padded = false;
        for (int i = 0; i < data.rank; ++i) {
            const int64_t from_stride = data.count(i + 1), to_stride = target.count(i + 1);
            dims.push_back({std::min(data[i], target[i]), from_stride, to_stride});
            from += std::max<int64_t>(data[i] - target[i], 0) / 2 * from_stride;
            to += std::max<int64_t>(target[i] - data[i], 0) / 2 * to_stride;
            padded |= target[i] > data[i];
        }
        const StridedCopy copy(static_cast<size_t>(element), dims);
        return std::make_unique<CenterRun>(copy, from * element, to * element, padded);
    }

  private:
    Shape wanted(const Shape& data, const Tensor& shape) const {
        expect_index_type(shape);
        const int64_t count = all_ ? data.rank : static_cast<int64_t>(axes_.size());
        if (shape.count() != count)
            throw BadOperand("the shape names " + std::to_string(shape.count()) + " dimensions for " + std::to_string(count) + " axes");
        Shape target = data;
        AxisSet seen;
        for (int64_t i = 0; i < count; ++i) {
            const int64_t axis = all_ ? i : axes_[static_cast<size_t>(i)], extent = Indices(shape)[i];
            seen.add(axis, data.rank);
            if (extent < 0) throw BadOperand("a dimension of " + std::to_string(extent));
            target[checked_axis(axis, data.rank)] = extent;
        }
        return target;
    }

    bool all_;
    std::vector<int64_t> axes_;
};

}  // namespace

void register_center_crop_pad(Registry& r) {
    r.add("CenterCropPad", [](const NodeSpec& s) -> std::unique_ptr<Kernel> {
        expect_bytes(s);
        return std::make_unique<CenterCropPad>(s);
    });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
