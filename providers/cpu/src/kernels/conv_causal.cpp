// CausalConvWithState: y[b, c, i] = activation(bias[c] + sum over t of w[c, 0, t] * padded[b, c, i + t]), where `padded` is the
// past state (zeros without one) followed by the input. https://onnx.ai/onnx/operators/onnx__CausalConvWithState.html
#include "kernels/conv.h"
#include "kernels/dtypes.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

using CausalTypes = Types<float, f16, bf16>;

template <class T> class CausalConv final : public Prepared {
  public:
    CausalConv(const Shape& x, int64_t kernel, ActivationSpec activation, bool bias, bool past, bool state)
        : channels_(x[1]), rows_(x[0] * x[1]), length_(x[2]), kernel_(kernel), activation_(activation), bias_(bias), past_(past), state_(state) {
        flops = 2.0 * static_cast<double>(x.count()) * static_cast<double>(kernel);
        algorithm = "depthwise";
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        parallel_ranges(context.threads, rows_, 1 + 50000 / (length_ * kernel_ + 1), [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) one(row, in, out);
        });
    }

  private:
    void one(int64_t row, const Tensor* in, const Tensor* out) const {
        const int64_t state = kernel_ - 1, channel = row % channels_;
        float* padded = static_cast<float*>(scratch(1, static_cast<size_t>(state + length_) * 4));
        if (past_) widen(in[3].as<T>() + row * state, padded, state);
        else std::fill(padded, padded + state, 0.f);
        widen(in[0].as<T>() + row * length_, padded + state, length_);
        if (state_) narrow(padded + length_, out[1].as<T>() + row * state, state);
        float* y = static_cast<float*>(scratch(2, static_cast<size_t>(length_) * 4));
        std::fill(y, y + length_, bias_ ? widen(in[2].as<T>()[channel]) : 0.f);
        for (int64_t t = 0; t < kernel_; ++t) {
            const float w = widen(in[1].as<T>()[channel * kernel_ + t]);
            for (int64_t i = 0; i < length_; ++i) y[i] += w * padded[i + t];
        }
        activate(activation_, y, y, length_);
        narrow(y, out[0].as<T>() + row * length_, length_);
    }
    int64_t channels_, rows_, length_, kernel_;
    ActivationSpec activation_;
    bool bias_, past_, state_;
};

class CausalConvKernel final : public Kernel {
  public:
    explicit CausalConvKernel(const NodeSpec& s) : bias_(s.has_input(2)), past_(s.has_input(3)), state_(s.has_output(1)) {
        if (!s.has_input(0) || !s.has_input(1)) throw BadOperand("the input or the weights are missing");
        visit<CausalTypes>(s.inputs[0].dtype, [](auto) { return 0; });
        const std::string name = s.attrs.text("activation", "none");
        if (name != "none" && name != "silu" && name != "swish") throw BadOperand("activation is '" + name + "'; it must be none, silu or swish");
        activation_ = activation_named(name == "none" ? "" : name);
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape &x = in[0].shape(), &w = in[1].shape();
        const DType dtype = in[0].dtype();
        if (x.rank != 3 || w.rank != 3 || w[0] != x[1] || w[1] != 1 || w[2] < 1)
            throw BadOperand("the input " + x.str() + " and the weights " + w.str() + " must be [batch, channels, length] and [channels, 1, taps]");
        const Shape state{x[0], x[1], w[2] - 1};
        if (in[1].dtype() != dtype || (past_ && in[3].dtype() != dtype)) throw BadOperand("the operands differ in type");
        if (past_ && in[3].shape() != state) throw BadOperand("the past state " + in[3].shape().str() + " must be " + state.str());
        if (bias_) check_bias(in[2], dtype, x[1]);
        check_size("the input", x);
        check_size("the state", state);
        out[0] = {dtype, x};
        if (state_) out[1] = {dtype, state};
        return visit<CausalTypes>(dtype, [&](auto type) -> std::unique_ptr<Prepared> {
            return std::make_unique<CausalConv<decltype(type)>>(x, w[2], activation_, bias_, past_, state_);
        });
    }

  private:
    ActivationSpec activation_;
    bool bias_, past_, state_;
};

}  // namespace

void register_conv_causal(Registry& r) {
    r.add("CausalConvWithState", [](const NodeSpec& s) { return std::make_unique<CausalConvKernel>(s); });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
