// Geometry of convolutions: checks of operands against each other. No operator is registered here.
#include "kernels/conv.h"

namespace opweave {
namespace OPWEAVE_ISA {

void take_kernel_shape(WindowAttrs& attrs, const Shape& w) {
    const std::vector<int64_t> kernel(w.begin() + std::min(2, w.rank), w.end());
    if (!attrs.kernel.empty() && attrs.kernel != kernel) throw BadOperand("kernel_shape differs from the weights " + w.str());
    attrs.kernel = kernel;
}

void check_bias(const Tensor& bias, DType dtype, int64_t channels) {
    if (!bias.present()) return;
    if (bias.dtype() != dtype) throw BadOperand(std::string("the bias is ") + name_of(bias.dtype()) + ", expected " + name_of(dtype));
    if (bias.shape().rank != 1 || bias.count() != channels)
        throw BadOperand("the bias " + bias.shape().str() + " must have one value for each of " + std::to_string(channels) + " channels");
}

ConvLayout conv_layout(WindowAttrs attrs, int64_t groups, const Shape& x, const Shape& w) {
    if (w.rank != x.rank) throw BadOperand("the weights " + w.str() + " and the input " + x.str() + " differ in rank");
    check_size("the weights", w);
    take_kernel_shape(attrs, w);
    ConvLayout l;
    l.window = place_window(attrs, x);
    if (groups < 1 || w[0] % groups != 0 || x[1] % groups != 0 || x[1] / groups != w[1])
        throw BadOperand("the weights " + w.str() + " do not suit the input " + x.str() + " in " + std::to_string(groups) + " groups");
    l.batch = x[0];
    l.groups = groups;
    l.ic = w[1];
    l.oc = w[0] / groups;
    l.out = l.window.out_shape(x[0], w[0]);
    return l;
}

void register_conv_layout(Registry&) {}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
