// The functions of vmath.h on single doubles, so that one formula serves vectors of float32 and float64.
#pragma once

#include <cmath>

#include "kernels/vmath.h"

namespace opweave {
namespace OPWEAVE_ISA {

// A constant in the type of a formula.
template <class X> inline X value(double c) {
    if constexpr (std::is_same_v<X, vf>) return splat(static_cast<float>(c));
    else return static_cast<X>(c);
}
inline double select(bool condition, double yes, double no) { return condition ? yes : no; }
inline double vabs(double x) { return std::fabs(x); }
inline double vmin(double a, double b) { return a < b ? a : b; }
inline double vmax(double a, double b) { return a > b ? a : b; }
inline double vclamp(double x, float low, float high) { return vmin(high, vmax(low, x)); }
inline double vsqrt(double x) { return std::sqrt(x); }
inline double vround(double x) { return std::nearbyint(x); }
inline double vfloor(double x) { return std::floor(x); }
inline double vceil(double x) { return std::ceil(x); }
inline double vexp(double x) { return std::exp(x); }
inline double vexpm1(double x) { return std::expm1(x); }
inline double vlog(double x) { return std::log(x); }
inline double vtanh(double x) { return std::tanh(x); }
inline double verf(double x) { return std::erf(x); }
inline double vsin(double x) { return std::sin(x); }
inline double vcos(double x) { return std::cos(x); }
inline double vtan(double x) { return std::tan(x); }
inline double vasin(double x) { return std::asin(x); }
inline double vacos(double x) { return std::acos(x); }
inline double vatan(double x) { return std::atan(x); }
inline double vsinh(double x) { return std::sinh(x); }
inline double vcosh(double x) { return std::cosh(x); }
inline double vasinh(double x) { return std::asinh(x); }
inline double vacosh(double x) { return std::acosh(x); }
inline double vatanh(double x) { return std::atanh(x); }
inline double vsigmoid(double x) {
    double e = std::exp(-std::fabs(x));
    return x < 0 ? e / (1 + e) : 1 / (1 + e);
}
inline double vsoftplus(double x) { return vmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }
inline double vmish(double x) { return x * std::tanh(vsoftplus(x)); }
inline double vgelu(double x) { return 0.5 * x * std::erfc(-x * 0.70710678118654752440); }
inline double vgelu_tanh(double x) { return 0.5 * x * (1 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x))); }

}  // namespace OPWEAVE_ISA
}  // namespace opweave
