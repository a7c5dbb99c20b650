// float16 and bfloat16 are storage only: a kernel widens a block to float32, computes, and rounds once on the way out
// (to nearest, ties to even). Include only from kernel files.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#if defined(__F16C__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace opweave {
namespace OPWEAVE_ISA {

struct f16 { uint16_t bits; };
struct bf16 { uint16_t bits; };

template <class T> constexpr bool is_narrow = std::is_same_v<T, f16> || std::is_same_v<T, bf16>;
template <class T> constexpr bool is_real = is_narrow<T> || std::is_floating_point_v<T>;
// The type that T is computed in.
template <class T> using wide_t = std::conditional_t<is_narrow<T>, float, T>;

inline float widen(f16 x) {
    _Float16 h;
    std::memcpy(&h, &x, 2);
    return static_cast<float>(h);
}
inline float widen(bf16 x) {
    uint32_t u = static_cast<uint32_t>(x.bits) << 16;
    float f;
    std::memcpy(&f, &u, 4);
    return f;
}
template <class T> inline std::enable_if_t<!is_narrow<T>, T> widen(T x) { return x; }

template <class T> inline T narrow(wide_t<T> x) {
    if constexpr (std::is_same_v<T, f16>) {
        _Float16 h = static_cast<_Float16>(x);
        f16 r;
        std::memcpy(&r, &h, 2);
        return r;
    } else if constexpr (std::is_same_v<T, bf16>) {
        uint32_t u;
        std::memcpy(&u, &x, 4);
        uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
        return {static_cast<uint16_t>(x != x ? (u >> 16) | 0x40 : rounded)};
    } else {
        return x;
    }
}

template <class T> inline void widen(const T* from, wide_t<T>* to, int64_t n) {
    int64_t i = 0;
#if defined(__AVX512F__)  // the maskz forms: GCC 12 warns of the plain ones
    if constexpr (std::is_same_v<T, f16>)
        for (; i + 16 <= n; i += 16)
            _mm512_storeu_ps(to + i, _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i))));
#elif defined(__F16C__)
    if constexpr (std::is_same_v<T, f16>)
        for (; i + 8 <= n; i += 8)
            _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
#endif
    for (; i < n; ++i) to[i] = widen(from[i]);
}
template <class T> inline void narrow(const wide_t<T>* from, T* to, int64_t n) {
    int64_t i = 0;
#if defined(__AVX512F__)
    if constexpr (std::is_same_v<T, f16>)
        for (; i + 16 <= n; i += 16)
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm512_maskz_cvtps_ph(0xffff, _mm512_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__)
    if constexpr (std::is_same_v<T, f16>)
        for (; i + 8 <= n; i += 8)
            _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#endif
    for (; i < n; ++i) to[i] = narrow<T>(from[i]);
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
