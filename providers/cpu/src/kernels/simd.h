// One vector type over every instruction set: GCC/Clang vector extensions, as wide as the target's registers. Products
// and sums written a * b + c become fused multiply-adds (-ffp-contract=fast). Include only from kernel files.
#pragma once

#include <cstdint>
#include <cstring>

namespace opweave {
namespace OPWEAVE_ISA {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

typedef float vf __attribute__((vector_size(kLanes * 4)));
typedef int32_t vi __attribute__((vector_size(kLanes * 4)));

inline vf load(const float* p) {
    vf v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
inline void store(float* p, vf v) { std::memcpy(p, &v, sizeof v); }
inline vi load(const int32_t* p) {
    vi v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
inline void store(int32_t* p, vi v) { std::memcpy(p, &v, sizeof v); }
inline vf splat(float x) { return x - vf{}; }
inline vi splat(int32_t x) { return x - vi{}; }
// The first n lanes (0 <= n <= kLanes); the others are zero, respectively not written.
inline vf load_part(const float* p, int n) {
    vf v{};
    std::memcpy(&v, p, static_cast<size_t>(n) * 4);
    return v;
}
inline void store_part(float* p, vf v, int n) { std::memcpy(p, &v, static_cast<size_t>(n) * 4); }
inline vf select(vi mask, vf yes, vf no) { return mask ? yes : no; }
// The rows of a square of kLanes vectors become its columns: halves are exchanged, then quarters, and so on.
template <int H = kLanes / 2> inline void transpose(vf* v) {
#if defined(__clang__)
    for (int i = 0; i < kLanes; ++i)
        for (int j = 0; j < i; ++j) {
            const float x = v[i][j];
            v[i][j] = v[j][i];
            v[j][i] = x;
        }
#else
    vi low{}, high{};
    for (int i = 0; i < kLanes; ++i) {
        low[i] = i & H ? i - H + kLanes : i;
        high[i] = i & H ? i + kLanes : i + H;
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
        if (i & H) continue;
        const vf a = v[i], b = v[i + H];
        v[i] = __builtin_shuffle(a, b, low);
        v[i + H] = __builtin_shuffle(a, b, high);
    }
    if constexpr (H > 1) transpose<H / 2>(v);
#endif
}
inline float sum(vf v) {
    float s = 0;
    for (int i = 0; i < kLanes; ++i) s += v[i];
    return s;
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
