// Elementary functions of f32 over vectors of any width. NaN in gives NaN out, infinities and signed zeros are those of
// C's libm, errors are 1 to 6 units in the last place (each function says). Polynomials were fitted (Lawson's weighted
// least squares, i.e. minimax) for the intervals named beside them. Include only from kernel files.
#pragma once

#include <cmath>
#include <limits>
#if defined(__AVX__)
#include <immintrin.h>
#endif

#include "kernels/simd.h"

namespace opweave {
namespace OPWEAVE_ISA {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

inline bool any(vi mask) {
#if defined(__AVX512F__)
    return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#elif defined(__AVX__)
    return !_mm256_testz_si256((__m256i)mask, (__m256i)mask);
#else
    int32_t all = 0;
    for (int i = 0; i < kLanes; ++i) all |= mask[i];
    return all != 0;
#endif
}
inline vf bits_to_float(vi v) { return (vf)v; }
inline vi float_bits(vf v) { return (vi)v; }
inline vf vabs(vf x) { return (vf)((vi)x & splat(int32_t{0x7fffffff})); }
inline vf sign_bit(vf x) { return (vf)((vi)x & splat(INT32_MIN)); }
// The magnitude of `x`, which must not be negative, with the sign of `sign`.
inline vf with_sign(vf x, vf sign) { return (vf)((vi)x | (vi)sign_bit(sign)); }
// C semantics of a comparison with NaN: the second operand. To keep a NaN of x, write vmin(limit, x).
inline vf vmin(vf a, vf b) { return select(a < b, a, b); }
inline vf vmax(vf a, vf b) { return select(a > b, a, b); }
inline vf vclamp(vf x, float low, float high) { return vmin(splat(high), vmax(splat(low), x)); }
inline vf to_float(vi v) { return __builtin_convertvector(v, vf); }
// Truncates; lanes outside int32 are undefined: clamp before.
inline vi to_int(vf v) { return __builtin_convertvector(v, vi); }
// 2^n for n in [-126, 127].
inline vf pow2(vi n) { return (vf)((n + splat(int32_t{127})) << 23); }
inline vf vsqrt(vf x) {
#if defined(__AVX512F__)
    return (vf)_mm512_maskz_sqrt_ps(static_cast<__mmask16>(-1), (__m512)x);  // the unmasked one makes GCC 12 warn
#elif defined(__AVX__)
    return (vf)_mm256_sqrt_ps((__m256)x);
#else
    vf y;
    for (int i = 0; i < kLanes; ++i) y[i] = std::sqrt(x[i]);
    return y;
#endif
}

template <class... C> inline vf polynomial(vf x, float first, C... rest) {
    if constexpr (sizeof...(rest) == 0) return splat(first);
    else return splat(first) + x * polynomial(x, rest...);
}

constexpr float kRoundMagic = 12582912.0f;  // 1.5 * 2^23: adding it leaves the rounded integer in the low mantissa bits

// Exact. Half goes to even.
inline vf vround(vf x) {
    vf a = vabs(x), shift = splat(8388608.0f);
    return select(a < shift, with_sign((a + shift) - shift, x), x);
}
inline vf vfloor(vf x) {
    vf r = vround(x);
    return select(r > x, r - 1.0f, r);
}
inline vf vceil(vf x) {
    vf r = vround(x);
    return select(r < x, with_sign(vabs(r + 1.0f), x), r);
}
inline vf vtrunc(vf x) {
    vf r = vround(vabs(x));
    return with_sign(select(r > vabs(x), r - 1.0f, r), x);
}

// x = k ln 2 + r with |r| <= ln 2 / 2, for |x| < 2^13; k comes as an integer vector.
struct ExpParts { vf r; vi k; };
inline ExpParts exp_reduce(vf x) {
    vf shifted = x * splat(1.44269504088896341f) + splat(kRoundMagic);
    vf k = shifted - splat(kRoundMagic);
    vf r = (x - k * splat(0.693115234375f)) - k * splat(3.19461849e-5f);
    return {r, (vi)shifted - (vi)splat(kRoundMagic)};
}
// (e^r - 1 - r) / r^2, |r| <= ln 2 / 2, error 5e-11 of e^r
inline vf exp_tail(vf r) {
    return polynomial(r, 5.000000081e-01f, 1.666666687e-01f, 4.166625858e-02f, 8.333263070e-03f, 1.394696089e-03f, 1.991917740e-04f);
}

// 1 ulp; denormal results are rounded, not flushed.
inline vf vexp(vf x) {
    ExpParts p = exp_reduce(vclamp(x, -104.0f, 89.0f));
    vf y = 1.0f + (p.r + p.r * p.r * exp_tail(p.r));
    vi half = p.k >> 1;
    return y * pow2(half) * pow2(p.k - half);
}
// 1 ulp: e^x for x <= 0, the case of softmax and of sigmoids; results under 2^-126 become 0.
inline vf vexp_negative(vf x) {
    ExpParts p = exp_reduce(vmax(splat(-87.3f), x));
    vf y = (1.0f + (p.r + p.r * p.r * exp_tail(p.r))) * pow2(p.k);
    return select(x < splat(-87.3f), vf{}, y);
}
// 2 ulp
inline vf vexpm1(vf x) {
    ExpParts p = exp_reduce(vclamp(x, -18.0f, 89.0f));
    vi high = p.k > splat(int32_t{127});  // 2^128 is not a float: halve the scale, double after
    vf scale = pow2(p.k + high);
    vf y = scale * (p.r + p.r * p.r * exp_tail(p.r)) + (scale - select(high, splat(0.5f), splat(1.0f)));
    return select(vabs(x) == 0.0f, x, select(high, y + y, y));
}

// 1 ulp
inline vf vlog(vf x) {
    vi tiny = x < splat(std::numeric_limits<float>::min());
    vf scaled = select(tiny, x * 8388608.0f, x);
    vi e = ((vi)scaled - splat(int32_t{0x3f3504f3})) >> 23;  // of a mantissa in [sqrt(1/2), sqrt(2))
    vf f = (vf)((vi)scaled - (e << 23)) - 1.0f;
    vf k = to_float(e - (tiny & splat(int32_t{23})));
    vf f2 = f * f;
    vf tail = polynomial(f, 3.333331197e-01f, -2.500000871e-01f, 2.000216708e-01f, -1.666809017e-01f, 1.421855391e-01f,
                         -1.240308681e-01f, 1.189351899e-01f, -1.169431947e-01f, 6.757537139e-02f);  // |error| 8e-10
    vf y = f2 * f * tail + k * splat(3.19461849e-5f);
    y = f + (y - 0.5f * f2) + k * splat(0.693115234375f);
    y = select(x == kInf, x, y);
    y = select(x == 0.0f, splat(-kInf), y);
    return select(x >= 0.0f, y, splat(kNan));
}
// 2 ulp
inline vf vlog1p(vf x) {
    vf w = 1.0f + x;
    vf lost = (x - (w - 1.0f)) / w;
    vf y = vlog(w) + select(vabs(lost) < 1.0f, lost, vf{});
    return select(vabs(x) == 0.0f, x, y);
}

// 6 ulp: a rational minimax of tanh(x)/x in x^2 on [0, 9], where tanh becomes 1
inline vf vtanh(vf x) {
    vf c = vclamp(x, -9.0f, 9.0f), z = c * c;
    vf p = polynomial(z, 9.999999795e-01f, 1.338102431e-01f, 3.495586604e-03f, 2.060905900e-05f, 1.335463221e-08f);
    vf q = polynomial(z, 1.0f, 4.671433990e-01f, 2.587697628e-02f, 3.285632405e-04f, 7.776545686e-07f);
    return vclamp(c * p / q, -1.0f, 1.0f);
}
// 6 ulp: a rational minimax of erf(x)/x in x^2 on [0, 4], where erf becomes 1
inline vf verf(vf x) {
    vf c = vclamp(x, -4.0f, 4.0f), z = c * c;
    vf p = polynomial(z, 1.128379139e+00f, 1.935457922e-01f, 5.310184879e-02f, 3.883377954e-03f, 2.845671288e-04f, 1.986782350e-06f);
    vf q = polynomial(z, 1.0f, 5.048580477e-01f, 1.153503080e-01f, 1.520731751e-02f, 1.185580315e-03f, 3.742024015e-05f);
    return vclamp(c * p / q, -1.0f, 1.0f);
}

// 2 ulp; e^-|x| under 2^-126 counts as zero
inline vf vsigmoid(vf x) {
    vf e = vexp_negative(-vabs(x));
    vf d = 1.0f / (1.0f + e);
    return select(x < 0.0f, e * d, d);
}
inline vf vsilu(vf x) { return x * vsigmoid(x); }
// x Phi(x); absolute error 1e-6 at most
inline vf vgelu(vf x) { return 0.5f * x * (1.0f + verf(x * 0.707106781186547524f)); }
inline vf vgelu_tanh(vf x) {
    vf inner = x * (0.797884560802865356f + 0.035677408136300125f * x * x);
    return 0.5f * x * (1.0f + vtanh(inner));
}
// log(1 + e^x)
inline vf vsoftplus(vf x) { return vmax(x, vf{}) + vlog1p(vexp_negative(-vabs(x))); }
inline vf vmish(vf x) { return x * vtanh(vsoftplus(x)); }
inline vf vhard_sigmoid(vf x, float alpha, float beta) { return vclamp(x * alpha + beta, 0.0f, 1.0f); }
inline vf vhard_swish(vf x) { return x * vhard_sigmoid(x, 1.0f / 6.0f, 0.5f); }

inline vf vsinh(vf x) {
    vf a = vabs(x), e = vexpm1(a), t = vexp(a * 0.5f);
    vf y = select(a > 88.0f, 0.5f * t * t, 0.5f * (e + e / (e + 1.0f)));
    return with_sign(y, x);
}
inline vf vcosh(vf x) {
    vf a = vabs(x), e = vexp(a), t = vexp(a * 0.5f);
    return select(a > 88.0f, 0.5f * t * t, 0.5f * e + 0.5f / e);
}
inline vf vasinh(vf x) {
    vf a = vabs(x), a2 = a * a;
    vf y = select(a > 1e9f, vlog(a) + 0.693147180559945309f, vlog1p(a + a2 / (1.0f + vsqrt(1.0f + a2))));
    return with_sign(vabs(y), x);
}
inline vf vacosh(vf x) {
    vf t = x - 1.0f;
    vf y = select(x > 1e9f, vlog(x) + 0.693147180559945309f, vlog1p(t + vsqrt(t * (t + 2.0f))));
    return select(x >= 1.0f, y, splat(kNan));
}
inline vf vatanh(vf x) {
    vf a = vabs(x);
    vf y = 0.5f * vlog1p((a + a) / (1.0f - a));
    y = select(a == 1.0f, splat(kInf), y);
    return select(a <= 1.0f, with_sign(vabs(y), x), splat(kNan));
}

// Quadrant and remainder of x by pi/2; |x| < 12867 (four constants of at most 11 bits keep the products exact).
struct Quadrant { vf r; vi k; };
inline Quadrant trig_reduce(vf x) {
    vf shifted = x * splat(0.636619772367581343f) + splat(kRoundMagic);
    vf k = shifted - splat(kRoundMagic);
    vf r = x - k * splat(1.5703125f);
    r = r - k * splat(4.837512969970703e-4f);
    r = r - k * splat(7.549533620476723e-8f);
    r = r - k * splat(2.5633440682570896e-12f);
    return {r, (vi)shifted - (vi)splat(kRoundMagic)};
}
inline vf sin_kernel(vf r) {
    vf z = r * r;
    return r + r * z * polynomial(z, -1.666666664e-01f, 8.333329144e-03f, -1.983925663e-04f, 2.717564402e-06f);
}
inline vf cos_kernel(vf r) {
    vf z = r * r;
    return 1.0f - 0.5f * z + z * z * polynomial(z, 4.166664565e-02f, -1.388730602e-03f, 2.443120315e-05f);
}
template <double (*F)(double)> inline vf lane_by_lane(vf x) {
    vf y;
    for (int i = 0; i < kLanes; ++i) y[i] = static_cast<float>(F(static_cast<double>(x[i])));
    return y;
}
inline vf trig_sign(vi k) { return (vf)((k & 2) << 30); }
// 2 ulp; a vector with a lane beyond 12867 goes lane by lane through the double-precision library
inline vf vsin(vf x) {
    if (any(~(vabs(x) < 12867.0f))) return lane_by_lane<std::sin>(x);
    Quadrant q = trig_reduce(x);
    vf y = select((q.k & 1) == 0, sin_kernel(q.r), cos_kernel(q.r));
    return select(x == 0.0f, x, (vf)((vi)y ^ (vi)trig_sign(q.k)));
}
inline vf vcos(vf x) {
    if (any(~(vabs(x) < 12867.0f))) return lane_by_lane<std::cos>(x);
    Quadrant q = trig_reduce(x);
    vf y = select((q.k & 1) == 0, cos_kernel(q.r), sin_kernel(q.r));
    return (vf)((vi)y ^ (vi)trig_sign(q.k + 1));
}
// 4 ulp
inline vf vtan(vf x) {
    if (any(~(vabs(x) < 12867.0f))) return lane_by_lane<std::tan>(x);
    Quadrant q = trig_reduce(x);
    vf s = sin_kernel(q.r), c = cos_kernel(q.r);
    vi even = (q.k & 1) == 0;
    return select(x == 0.0f, x, select(even, s, -c) / select(even, c, s));
}
// 3 ulp
inline vf vatan(vf x) {
    vf a = vabs(x);
    vi far = a > 2.41421356f, middle = a > 0.41421356f;
    vf numerator = select(far, splat(-1.0f), select(middle, a - 1.0f, a));
    vf denominator = select(far, a, select(middle, a + 1.0f, splat(1.0f)));
    vf t = numerator / denominator, z = t * t;
    vf base = select(far, splat(1.57079632679489662f), select(middle, splat(0.785398163397448310f), vf{}));
    vf y = base + (t + t * z * polynomial(z, -3.333294127e-01f, 1.997733003e-01f, -1.387284754e-01f, 8.036030642e-02f));
    return with_sign(vabs(y), x);
}
// asin on [0, 1/2]
inline vf asin_kernel(vf a) {
    vf z = a * a;
    return a + a * z * polynomial(z, 1.666675413e-01f, 7.495232672e-02f, 4.547834174e-02f, 2.414099792e-02f, 4.223052999e-02f);
}
// 3 ulp
inline vf vasin(vf x) {
    vf a = vabs(x);
    vi far = a > 0.5f;
    vf k = asin_kernel(select(far, vsqrt((1.0f - a) * 0.5f), a));
    return with_sign(vabs(select(far, 1.57079632679489662f - (k + k), k)), x);
}
inline vf vacos(vf x) {
    vf a = vabs(x);
    vi far = a > 0.5f;
    vf k = asin_kernel(select(far, vsqrt((1.0f - a) * 0.5f), a));
    vf outer = select(x < 0.0f, 3.14159265358979324f - (k + k), k + k);
    return select(far, outer, 1.57079632679489662f - with_sign(k, x));
}

// Doubles, in half as many lanes: only what pow needs.
typedef double vd __attribute__((vector_size(kLanes * 4)));
typedef int64_t vq __attribute__((vector_size(kLanes * 4)));
typedef float vfh __attribute__((vector_size(kLanes * 2)));

// a^y = 2^(y log2 a) for a positive and finite, y finite; relative error 1e-10 times |y log2 a| at most.
inline vd pow_positive(vd a, vd y) {
    const vq one = vq{} + int64_t{1023}, magic_bits = (vq)(vd{} + 4503599627370496.0);
    vq e = (vq)(((vq)a - int64_t{0x3fe6a09e667f3bcd}) + (one << 52));
    vq biased = (e >> 52) & 2047;
    vd k = (vd)(biased | magic_bits) - (4503599627370496.0 + 1023.0);
    vd m = (vd)((vq)a - ((biased - one) << 52));
    vd s = (m - 1.0) / (m + 1.0), z = s * s;
    vd l = k + s * (2.88539008177784506e+00 + z * (9.61796694123103091e-01 + z * (5.77077939281876895e-01 +
           z * (4.12209585972742765e-01 + z * (3.19891199811970450e-01 + z * 2.83117875513879513e-01)))));
    vd t = y * l;
    t = t > 200.0 ? vd{} + 200.0 : t;
    t = t < -200.0 ? vd{} - 200.0 : t;
    const double magic = 6755399441055744.0;  // 1.5 * 2^52
    vd shifted = t + magic;
    vd r = t - (shifted - magic);
    vd p = 9.99999999961682318e-01 + r * (6.93147180728453938e-01 + r * (2.40226511981562418e-01 + r * (5.55041035342404010e-02 +
           r * (9.61802725381986912e-03 + r * (1.33339225829732719e-03 + r * (1.54692911009290252e-04 + r * 1.52019171070242806e-05))))));
    return (vd)((vq)p + ((vq)shifted << 52));
}
// 1 ulp
inline vf vpow(vf x, vf y) {
    vf a = vabs(x), result;
    for (int h = 0; h < 2; ++h) {
        vfh ah, yh;
        std::memcpy(&ah, reinterpret_cast<char*>(&a) + h * sizeof ah, sizeof ah);
        std::memcpy(&yh, reinterpret_cast<char*>(&y) + h * sizeof yh, sizeof yh);
        vfh r = __builtin_convertvector(pow_positive(__builtin_convertvector(ah, vd), __builtin_convertvector(yh, vd)), vfh);
        std::memcpy(reinterpret_cast<char*>(&result) + h * sizeof r, &r, sizeof r);
    }
    vi special = ~((x > 0.0f) & (a < kInf) & (vabs(y) < kInf));
    if (any(special))
        for (int i = 0; i < kLanes; ++i)
            if (special[i]) result[i] = std::pow(x[i], y[i]);
    return result;
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
