// Transpose, DepthToSpace, SpaceToDepth: one strided copy each.
// https://onnx.ai/onnx/operators/onnx__Transpose.html, __DepthToSpace.html, __SpaceToDepth.html
#include "kernels/strided.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

// The copy that makes a contiguous tensor of `shape` permuted contiguous.
std::vector<StridedDim> permuted(const Shape& shape, const std::vector<int64_t>& perm) {
    std::vector<StridedDim> dims(perm.size());
    int64_t stride = 1;
    for (size_t i = perm.size(); i-- > 0;) {
        const int axis = static_cast<int>(perm[i]);
        dims[i] = {shape[axis], shape.count(axis + 1), stride};
        stride *= shape[axis];
    }
    return dims;
}

class Transpose final : public Kernel {
  public:
    explicit Transpose(const NodeSpec& s) : reversed_(!s.attrs.has("perm")), perm_(s.attrs.integers("perm")) {}
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape& shape = in[0].shape();
        const std::vector<int64_t> perm = checked(shape.rank);
        out[0].dtype = in[0].dtype();
        out[0].shape = {};
        for (int64_t axis : perm) out[0].shape.push_back(shape[static_cast<int>(axis)]);
        return std::make_unique<StridedRun>(size_of(in[0].dtype()), permuted(shape, perm));
    }

  private:
    std::vector<int64_t> checked(int rank) const {
        std::vector<int64_t> perm = perm_;
        if (reversed_)
            for (int i = rank; i-- > 0;) perm.push_back(i);
        if (static_cast<int>(perm.size()) != rank)
            throw BadOperand("perm has " + std::to_string(perm.size()) + " axes for an input of rank " + std::to_string(rank));
        AxisSet seen;
        for (int64_t& axis : perm) {
            seen.add(axis, rank);
            axis = checked_axis(axis, rank);
        }
        return perm;
    }

    bool reversed_;
    std::vector<int64_t> perm_;
};

// Moves blocks of the channels into the plane, or back.
class Blocks final : public Kernel {
  public:
    Blocks(const NodeSpec& s, bool to_space)
        : to_space_(to_space), size_(s.attrs.integer("blocksize", 0)), columns_first_(s.attrs.text("mode", "DCR") == "CRD") {
        if (size_ < 1 || size_ > 65536) throw BadOperand("blocksize is " + std::to_string(size_));
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape& s = in[0].shape();
        if (s.rank != 4) throw BadOperand("expected an input of rank 4, its shape is " + s.str());
        const int64_t n = s[0], c = s[1], h = s[2], w = s[3], b = size_;
        if (to_space_ ? c % (b * b) != 0 : h % b != 0 || w % b != 0)
            throw BadOperand("blocks of " + std::to_string(b) + " do not divide " + s.str());
        out[0].dtype = in[0].dtype();
        Shape parts;
        std::vector<int64_t> perm;
        if (!to_space_) {
            out[0].shape = {n, c * b * b, h / b, w / b};
            parts = {n, c, h / b, b, w / b, b};
            perm = columns_first_ ? std::vector<int64_t>{0, 1, 3, 5, 2, 4} : std::vector<int64_t>{0, 3, 5, 1, 2, 4};
        } else {
            out[0].shape = {n, c / (b * b), h * b, w * b};
            parts = columns_first_ ? Shape{n, c / (b * b), b, b, h, w} : Shape{n, b, b, c / (b * b), h, w};
            perm = columns_first_ ? std::vector<int64_t>{0, 1, 4, 2, 5, 3} : std::vector<int64_t>{0, 3, 4, 1, 5, 2};
        }
        return std::make_unique<StridedRun>(size_of(in[0].dtype()), permuted(parts, perm));
    }

  private:
    bool to_space_;
    int64_t size_;
    bool columns_first_;  // CRD: the channel's index is the slower one, the block's the faster
};

}  // namespace

void register_transpose(Registry& r) {
    r.add("Transpose", [](const NodeSpec& s) -> std::unique_ptr<Kernel> {
        expect_bytes(s);
        return std::make_unique<Transpose>(s);
    });
    for (bool to_space : {true, false})
        r.add(to_space ? "DepthToSpace" : "SpaceToDepth", [to_space](const NodeSpec& s) -> std::unique_ptr<Kernel> {
            expect_bytes(s);
            return std::make_unique<Blocks>(s, to_space);
        });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
