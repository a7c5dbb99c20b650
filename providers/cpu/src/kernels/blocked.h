// Blocked tensors, the layout inside regions of convolutions: float32 [N, ceil(C / 16), spatial..., 16], sixteen channels
// of one position together on every instruction set. Lanes past C hold anything, NaN included: kernels compute on them like
// on others, and never let them reach a channel that exists.
#pragma once

#include "kernels/activation.h"
#include "kernels/window.h"

namespace opweave {
namespace OPWEAVE_ISA {

constexpr int64_t kBlockLanes = 16;
constexpr int kBlockParts = static_cast<int>(kBlockLanes) / kLanes;  // vectors of a block

inline int64_t blocks_of(int64_t channels) { return ceil_div(channels, kBlockLanes); }

// [N, C, spatial...] as a blocked shape.
inline Shape blocked_shape(const Shape& plain) {
    Shape s = plain;
    s[1] = blocks_of(plain[1]);
    s.push_back(kBlockLanes);
    return s;
}
// The shape that a blocked one of so many channels stands for; throws where it is none.
inline Shape plain_shape(const Shape& blocked, int64_t channels) {
    if (blocked.rank < 3 || blocked.back() != kBlockLanes || blocked[1] != blocks_of(channels))
        throw BadOperand("the blocked input " + blocked.str() + " does not hold " + std::to_string(channels) + " channels");
    Shape s = blocked;
    --s.rank;
    s[1] = channels;
    return s;
}
inline void expect_floats(const Tensor& t, const char* what) {
    if (t.dtype() != DType::F32) throw BadOperand(std::string(what) + " is " + name_of(t.dtype()) + ", expected float32");
}

// Activations that are two bounds, which a kernel applies in registers. NaN passes, as in activation.h.
struct Bounds {
    float low = -__builtin_inff(), high = __builtin_inff();
    bool whole = true;  // nothing else is left to do
    explicit Bounds(const ActivationSpec& a) {
        if (a.kind == Activation::Relu) low = 0;
        else if (a.kind == Activation::Clip) low = a.alpha, high = a.beta;
        else whole = a.kind == Activation::None;
    }
    vf apply(vf x) const {
        x = x < low ? splat(low) : x;
        return x > high ? splat(high) : x;
    }
};

}  // namespace OPWEAVE_ISA
}  // namespace opweave
