// The 8-bit matrix-product engine of qgemm.h. No operator is registered here.
#include "kernels/qgemm.h"

#include <algorithm>
#include <cmath>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "core/parallel.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

#if defined(__AVX512VNNI__)
using Element = uint8_t;  // of a word of A; B's are int8
inline vi multiply_add(vi sum, vi a, vi b) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));  // GCC 12 spills the sums around the intrinsic
    return sum;
}
#else
using Element = int16_t;
inline vi multiply_add(vi sum, vi a, vi b) {
#if defined(__AVX512BW__)
    return sum + (vi)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX512F__)
    return sum + ((a << 16) >> 16) * ((b << 16) >> 16) + (a >> 16) * (b >> 16);
#elif defined(__AVX2__)
    return sum + (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__) && !defined(__AVX__)
    return sum + (vi)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    return sum + ((a << 16) >> 16) * ((b << 16) >> 16) + (a >> 16) * (b >> 16);
#endif
}
#endif

constexpr double kSerialWork = 200e3;  // multiply-adds below which a second thread does not pay
constexpr int kTileRows = 6;

int64_t words_of(int64_t k) { return (k + kGroup - 1) / kGroup; }

template <int R, int NB> void micro(const int32_t* a, int64_t lda, const int32_t* b, int64_t words, int32_t* tile) {
    vi acc[R][NB];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int j = 0; j < NB; ++j) acc[r][j] = vi{};
    for (int64_t p = 0; p < words; ++p) {
        vi bv[NB];
#pragma GCC unroll 4
        for (int j = 0; j < NB; ++j) bv[j] = load(b + j * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            vi av = splat(a[r * lda + p]);
#pragma GCC unroll 4
            for (int j = 0; j < NB; ++j) acc[r][j] = multiply_add(acc[r][j], av, bv[j]);
        }
        b += NB * kLanes;
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int j = 0; j < NB; ++j) store(tile + r * kPanel + j * kLanes, acc[r][j]);
}

using Micro = void (*)(const int32_t*, int64_t, const int32_t*, int64_t, int32_t*);
template <int NB> Micro micro_of_rows(int rows) {
    static constexpr Micro table[] = {micro<1, NB>, micro<2, NB>, micro<3, NB>, micro<4, NB>, micro<5, NB>, micro<6, NB>};
    return table[rows - 1];
}
Micro micro_for(int rows, int64_t columns) {
    switch ((columns + kLanes - 1) / kLanes) {
        case 1: return micro_of_rows<1>(rows);
        case 2: return micro_of_rows<2>(rows);
        case 3: return micro_of_rows<std::min(3, kPanelVectors)>(rows);
        default: return micro_of_rows<kPanelVectors>(rows);
    }
}

// A as words, rows of `words` words, and the sums of its rows.
void pack_rows(const ByteMatrix& a, int64_t m, int64_t k, Element* to, int32_t* sums) {
    const int64_t depth = words_of(k) * kGroup;
    const uint8_t flip = a.is_signed ? 0x80 : 0;
    for (int64_t i = 0; i < m; ++i, to += depth) {
        const uint8_t* row = a.data + i * a.row;
        int32_t sum = 0;
        for (int64_t p = 0; p < k; ++p) {
            const uint8_t value = row[p] ^ flip;
            to[p] = value;
            sum += value;
        }
        std::fill(to + k, to + depth, Element{0});
        sums[i] = sum;
    }
}

void pack_panel(const ByteMatrix& b, int64_t k, int64_t columns, std::make_signed_t<Element>* to, int32_t* sums) {
    const int64_t width = round_up(columns, kLanes);
    const uint8_t flip = b.is_signed ? 0 : 0x80;
    for (int64_t p = 0; p < words_of(k) * kGroup; p += kGroup)
        for (int64_t j = 0; j < width; ++j)
            for (int64_t g = p; g < p + kGroup; ++g) {
                const bool inside = g < k && j < columns;
                const int8_t value = inside ? static_cast<int8_t>(b.data[g * b.row + j * b.column] ^ flip) : int8_t{0};
                *to++ = value;
                if (inside) sums[j] += value;
            }
}

// (A - az)(B - bz) = AB - az sum(B) - bz (sum(A) - k az), all in terms of the elements as packed; wraps in 32 bits.
struct Correction {
    const int32_t *row_sums, *column_sums;
    ZeroPoint a_zero, b_zero;
    int32_t a_shift, b_shift;
    int64_t k;
    void apply(int32_t* tile, int64_t row, int64_t column, int64_t rows, int64_t columns) const {
        for (int64_t r = 0; r < rows; ++r) {
            const uint32_t az = static_cast<uint32_t>(a_zero[row + r] + a_shift);
            const uint32_t rest = static_cast<uint32_t>(row_sums[row + r]) - static_cast<uint32_t>(k) * az;
            int32_t* c = tile + r * kPanel;
            const int32_t* sums = column_sums + column;
            for (int64_t j = 0; j < columns; ++j) {
                const uint32_t bz = static_cast<uint32_t>(b_zero[column + j] + b_shift);
                c[j] = static_cast<int32_t>(static_cast<uint32_t>(c[j]) - az * static_cast<uint32_t>(sums[j]) - bz * rest);
            }
        }
    }
};

}  // namespace

size_t packed_bytes_size(int64_t k, int64_t n) { return static_cast<size_t>(words_of(k) * round_up(n, kLanes)) * 4; }

PackedBytes pack_bytes(const ByteMatrix& b, int64_t k, int64_t n, void* words) {
    PackedBytes packed{k, n, b.is_signed, std::shared_ptr<const void>(std::shared_ptr<void>(), words), std::vector<int32_t>(static_cast<size_t>(n))};
    for (int64_t j = 0; j < n; j += kPanel) {
        ByteMatrix part = b;
        part.data += j * b.column;
        auto* to = reinterpret_cast<std::make_signed_t<Element>*>(static_cast<int32_t*>(words) + j * words_of(k));
        pack_panel(part, k, std::min<int64_t>(kPanel, n - j), to, packed.column_sums.data() + j);
    }
    return packed;
}
PackedBytes pack_bytes(const ByteMatrix& b, int64_t k, int64_t n) {
    std::shared_ptr<void> words = aligned_buffer(packed_bytes_size(k, n));
    PackedBytes packed = pack_bytes(b, k, n, words.get());
    packed.words = words;
    return packed;
}

void byte_gemm(int64_t m, const ByteMatrix& a, ZeroPoint a_zero, const PackedBytes& b, ZeroPoint b_zero, const FinishTile& finish,
               int threads) {
    if (m <= 0 || b.n <= 0) return;
    if (static_cast<double>(m) * static_cast<double>(b.n) * static_cast<double>(b.k) < kSerialWork) threads = 1;
    const int64_t words = words_of(b.k);
    int32_t* sums = static_cast<int32_t*>(scratch(3, static_cast<size_t>(m * (words + 1)) * 4));
    int32_t* rows_of_a = sums + m;
    parallel_ranges(threads, m, 1 + 65536 / std::max<int64_t>(b.k, 1), [&](int64_t begin, int64_t end) {
        ByteMatrix part = a;
        part.data += begin * a.row;
        pack_rows(part, end - begin, b.k, reinterpret_cast<Element*>(rows_of_a + begin * words), sums + begin);
    });
    const Correction correction{sums, b.column_sums.data(), a_zero, b_zero, a.is_signed ? 128 : 0, b.was_signed ? 0 : -128, b.k};
    const int64_t panels = (b.n + kPanel - 1) / kPanel;
    const int64_t wanted = threads > 1 && panels < 4 * threads ? (4 * threads + panels - 1) / panels : 1;
    const int64_t tiles = (m + kTileRows - 1) / kTileRows, pieces = std::min(wanted, tiles);
    parallel_for(threads, pieces * panels, [&](int64_t task) {
        alignas(64) int32_t tile[kTileRows * kPanel];
        const int64_t piece = task / panels, column = task % panels * kPanel, columns = std::min<int64_t>(kPanel, b.n - column);
        const int32_t* panel = static_cast<const int32_t*>(b.words.get()) + column * words;
        for (int64_t t = tiles * piece / pieces; t < tiles * (piece + 1) / pieces; ++t) {
            const int64_t row = m * t / tiles, rows = m * (t + 1) / tiles - row;
            micro_for(static_cast<int>(rows), columns)(rows_of_a + row * words, words, panel, words, tile);
            correction.apply(tile, row, column, rows, columns);
            finish(tile, row, column, rows, columns);
        }
    });
}

DynamicScale dynamic_scale(const float* x, int64_t n) {
    vf lows{}, highs{};  // NaN does not count
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) lows = vmin(load(x + i), lows), highs = vmax(load(x + i), highs);
    const vf rest = load_part(x + i, static_cast<int>(n - i));
    lows = vmin(rest, lows), highs = vmax(rest, highs);
    float low = 0, high = 0;
    for (int j = 0; j < kLanes; ++j) low = std::min(low, lows[j]), high = std::max(high, highs[j]);
    DynamicScale s;
    if (high > low) s.scale = (high - low) / 255;
    if (!(s.scale > 0) || !(s.scale < __builtin_inff())) return {s.scale, 0};  // a subnormal or an infinite range
    s.zero = static_cast<int32_t>(std::nearbyint(std::min(255.f, std::max(0.f, -low / s.scale))));
    return s;
}

void quantize(const float* x, int64_t n, DynamicScale s, uint8_t* y) {
    const float zero = static_cast<float>(s.zero);
    for (int64_t i = 0; i < n; ++i) {
        float v = std::nearbyint(x[i] / s.scale) + zero;
        v = v > 0.f ? v : 0.f;  // NaN becomes 0
        y[i] = static_cast<uint8_t>(v < 255.f ? v : 255.f);
    }
}

void register_qgemm(Registry&) {}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
