// Activations on vectors, as epilogues of matrix products and as gates of recurrent nets: a choice made at run time over
// the functions of vmath.h.
#pragma once

#include <string>

#include "core/kernel.h"
#include "kernels/vmath.h"

namespace opweave {
namespace OPWEAVE_ISA {
enum class Activation : uint8_t {
    None, Relu, LeakyRelu, ThresholdedRelu, Clip, Sigmoid, Tanh, HardSigmoid, HardSwish, Silu, Gelu, GeluTanh, QuickGelu,
    Elu, Softsign, Softplus, Affine, ScaledTanh,
};

// An activation with its parameters, under ONNX's names: alpha and beta (Clip: the bounds), defaults filled in.
struct ActivationSpec {
    Activation kind = Activation::None;
    float alpha = 0, beta = 0;
};

// Calls f with a function vf -> vf that computes the activation: the choice is made once, outside the loop.
template <class F> inline void with_activation(const ActivationSpec& s, F&& f) {
    const float a = s.alpha, b = s.beta;
    switch (s.kind) {
        case Activation::None: return f([](vf x) { return x; });
        case Activation::Relu: return f([](vf x) { return x < 0.f ? vf{} : x; });
        case Activation::LeakyRelu: return f([=](vf x) { return x < 0.f ? x * a : x; });
        case Activation::ThresholdedRelu: return f([=](vf x) { return x <= a ? vf{} : x; });
        case Activation::Clip: return f([=](vf x) {
            vf y = x < a ? splat(a) : x;
            return y > b ? splat(b) : y;
        });
        case Activation::Sigmoid: return f([](vf x) { return vsigmoid(x); });
        case Activation::Tanh: return f([](vf x) { return vtanh(x); });
        case Activation::HardSigmoid: return f([=](vf x) { return vhard_sigmoid(x, a, b); });
        case Activation::HardSwish: return f([](vf x) { return vhard_swish(x); });
        case Activation::Silu: return f([](vf x) { return vsilu(x); });
        case Activation::Gelu: return f([](vf x) { return vgelu(x); });
        case Activation::GeluTanh: return f([](vf x) { return vgelu_tanh(x); });
        case Activation::QuickGelu: return f([=](vf x) { return x * vsigmoid(x * a); });
        case Activation::Elu: return f([=](vf x) { return x < 0.f ? a * vexpm1(x) : x; });
        case Activation::Softsign: return f([](vf x) { return x / (1.f + vabs(x)); });
        case Activation::Softplus: return f([](vf x) { return vsoftplus(x); });
        case Activation::Affine: return f([=](vf x) { return x * a + b; });
        case Activation::ScaledTanh: return f([=](vf x) { return a * vtanh(x * b); });
    }
}

// y[i] = activation(x[i]); y may be x.
inline void activate(const ActivationSpec& s, const float* x, float* y, int64_t n) {
    with_activation(s, [&](auto f) {
        int64_t i = 0;
        for (; i + kLanes <= n; i += kLanes) store(y + i, f(load(x + i)));
        if (i < n) store_part(y + i, f(load_part(x + i, static_cast<int>(n - i))), static_cast<int>(n - i));
    });
}

// Throws Unsupported for a name it does not know. Case does not matter; "" is None.
inline ActivationSpec activation_named(std::string name, bool has_alpha = false, float alpha = 0, bool has_beta = false,
                                       float beta = 0) {
    struct Entry { const char* name; Activation kind; float alpha, beta; };
    const float inf = __builtin_inff();
    const Entry entries[] = {
        {"", Activation::None, 0, 0}, {"relu", Activation::Relu, 0, 0}, {"leakyrelu", Activation::LeakyRelu, 0.01f, 0},
        {"thresholdedrelu", Activation::ThresholdedRelu, 1, 0}, {"clip", Activation::Clip, -inf, inf},
        {"sigmoid", Activation::Sigmoid, 0, 0}, {"tanh", Activation::Tanh, 0, 0},
        {"hardsigmoid", Activation::HardSigmoid, 0.2f, 0.5f}, {"hardswish", Activation::HardSwish, 0, 0},
        {"silu", Activation::Silu, 0, 0}, {"swish", Activation::Silu, 0, 0}, {"gelu", Activation::Gelu, 0, 0},
        {"gelutanh", Activation::GeluTanh, 0, 0}, {"quickgelu", Activation::QuickGelu, 1.702f, 0},
        {"elu", Activation::Elu, 1, 0}, {"softsign", Activation::Softsign, 0, 0}, {"softplus", Activation::Softplus, 0, 0},
        {"affine", Activation::Affine, 1, 0}, {"scaledtanh", Activation::ScaledTanh, 1, 1},
    };
    for (char& c : name)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    for (const Entry& e : entries)
        if (name == e.name) return {e.kind, has_alpha ? alpha : e.alpha, has_beta ? beta : e.beta};
    throw Unsupported("no native form of the activation '" + name + "'");
}

// Reads attributes "activation" and "activation_params" (alpha, beta; Clip: low and high bound), as fused operators have.
inline ActivationSpec activation_of(const Attrs& attrs) {
    const std::vector<double> p = attrs.reals("activation_params");
    return activation_named(attrs.text("activation", ""), !p.empty(), p.empty() ? 0 : static_cast<float>(p[0]), p.size() > 1,
                            p.size() > 1 ? static_cast<float>(p[1]) : 0);
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
