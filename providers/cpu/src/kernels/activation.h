// Activations on vectors, as epilogues of matrix products and as gates of recurrent nets. Polynomials were fitted by
// least squares on Chebyshev nodes; every function is within a few units in the last place of the float64 value.
#pragma once

#include <string>

#include "core/kernel.h"
#include "kernels/simd.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace act {

inline vf min(vf a, vf b) { return a < b ? a : b; }
inline vf max(vf a, vf b) { return a > b ? a : b; }
inline vf abs(vf x) {
    vi bits = (vi)x & 0x7fffffff;
    return (vf)bits;
}
inline vf with_sign_of(vf magnitude, vf x) { return (vf)((vi)magnitude | ((vi)x & static_cast<int32_t>(0x80000000u))); }

inline vf exp(vf x) {
    const vf shift = splat(12582912.f);  // 1.5 * 2^23: adding it rounds to an integer
    vf bounded = x > 88.8f ? splat(88.8f) : x;  // NaN passes through
    bounded = bounded < -87.3f ? splat(-87.3f) : bounded;
    vf n = bounded * 1.44269504f + shift;
    vi power = (vi)n - (vi)shift;
    n = n - shift;
    vf r = bounded - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    vf p = splat(0.001393365f);
    p = p * r + 0.00836318012f;
    p = p * r + 0.0416664649f;
    p = p * r + 0.16666577f;
    p = p * r + 0.500000001f;
    p = p * (r * r) + r;
    p = p + 1.f;
    vi half = power >> 1;  // two factors, so that 2^128 needs no exponent of its own
    vf y = p * (vf)((half + 127) << 23) * (vf)((power - half + 127) << 23);
    y = x > 88.7228f ? splat(__builtin_inff()) : y;
    return x < -87.3f ? vf{} : y;
}
inline vf sigmoid(vf x) { return 1.f / (1.f + exp(-x)); }
inline vf tanh(vf x) {
    vf z = x * x;
    vf p = splat(-0.00605369738f);
    p = p * z + 0.020968187f;
    p = p * z - 0.053844989f;
    p = p * z + 0.133327328f;
    p = p * z - 0.333333286f;
    vf small = x + x * (z * p);
    vf large = 1.f - 2.f / (exp(2.f * abs(x)) + 1.f);
    return z < 0.390625f ? small : with_sign_of(large, x);
}
inline vf erf(vf x) {
    vf z = x * x, a = abs(x);
    vf p = splat(7.88249711e-05f);
    p = p * z - 0.000801885499f;
    p = p * z + 0.00518931194f;
    p = p * z - 0.0268543288f;
    p = p * z + 0.112835975f;
    p = p * z - 0.376126269f;
    p = p * z + 1.12837917f;
    vf t = 1.f / (1.f + 0.5f * a);
    vf q = splat(0.0966274253f);
    q = q * t - 0.390629021f;
    q = q * t + 0.442118869f;
    q = q * t - 0.00351088211f;
    q = q * t + 0.298730762f;
    q = q * t + 0.273957759f;
    q = q * t + 0.282633566f;
    vf large = 1.f - q * t * exp(-z);
    return a < 1.f ? x * p : with_sign_of(large, x);
}
inline vf softplus(vf x) {  // log(1 + exp(x)), lane by lane: rare
    vf y;
    for (int i = 0; i < kLanes; ++i)
        y[i] = __builtin_log1pf(__builtin_expf(-__builtin_fabsf(x[i]))) + (x[i] > 0 ? x[i] : 0.f);
    return y;
}
inline vf gelu(vf x) { return 0.5f * x * (1.f + erf(x * 0.70710678f)); }
inline vf gelu_tanh(vf x) { return x * sigmoid(x * (1.59576912f + 0.0713548163f * (x * x))); }

}  // namespace act

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
        case Activation::Sigmoid: return f([](vf x) { return act::sigmoid(x); });
        case Activation::Tanh: return f([](vf x) { return act::tanh(x); });
        case Activation::HardSigmoid: return f([=](vf x) { return act::min(act::max(x * a + b, vf{}), splat(1.f)); });
        case Activation::HardSwish: return f([](vf x) {
            return x * act::min(act::max(x * (1.f / 6.f) + 0.5f, vf{}), splat(1.f));
        });
        case Activation::Silu: return f([](vf x) { return x * act::sigmoid(x); });
        case Activation::Gelu: return f([](vf x) { return act::gelu(x); });
        case Activation::GeluTanh: return f([](vf x) { return act::gelu_tanh(x); });
        case Activation::QuickGelu: return f([=](vf x) { return x * act::sigmoid(x * a); });
        case Activation::Elu: return f([=](vf x) { return x < 0.f ? a * (act::exp(x) - 1.f) : x; });
        case Activation::Softsign: return f([](vf x) { return x / (1.f + act::abs(x)); });
        case Activation::Softplus: return f([](vf x) { return act::softplus(x); });
        case Activation::Affine: return f([=](vf x) { return x * a + b; });
        case Activation::ScaledTanh: return f([=](vf x) { return a * act::tanh(x * b); });
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

// Reads attributes "activation", "activation_alpha", "activation_beta" (Clip: low and high bound).
inline ActivationSpec activation_of(const Attrs& attrs) {
    return activation_named(attrs.text("activation", ""), attrs.has("activation_alpha"),
                            static_cast<float>(attrs.real("activation_alpha", 0)), attrs.has("activation_beta"),
                            static_cast<float>(attrs.real("activation_beta", 0)));
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
