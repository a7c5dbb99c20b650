// The float32 matrix-product engine of gemm.h: micro-kernels, packing, blocking. No operator is registered here.
#include "kernels/gemm.h"

#include <algorithm>
#include <cstring>

#include "core/parallel.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

constexpr int64_t kFirstCacheBytes = 32 * 1024, kSecondCacheBytes = 512 * 1024;
// Rows of B in one block: a block of a panel takes the first-level cache.
constexpr int64_t kBlockK = kFirstCacheBytes / (kPanel * 4);
constexpr int kMaxRows = kPanelVectors == 4 ? 8 : 6;  // rows of a tile that is narrower than a panel
constexpr double kSerialWork = 60e3;                  // multiply-adds below which a second thread does not pay

struct Tile {
    const float* a;
    int64_t lda;  // between rows of A; unused when A is packed
    const float* b;
    int64_t ldb;
    float* c;
    int64_t ldc;
    int64_t k;
    int last;         // columns of the last vector
    bool accumulate;  // add to C
};

// With packed A, element (row, p) is at a[p * R + row].
template <int R, int NB, bool Packed> void micro(const Tile& t) {
    vf acc[R][NB];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int j = 0; j < NB; ++j) acc[r][j] = vf{};
    const float* b = t.b;
    const float* a = t.a;
    const int64_t lda = t.lda, ldb = t.ldb, k = t.k;
    for (int64_t p = 0; p < k; ++p) {
        vf bv[NB];
#pragma GCC unroll 4
        for (int j = 0; j < NB; ++j) bv[j] = load(b + j * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            vf av = splat(Packed ? a[r] : a[r * lda]);
#pragma GCC unroll 4
            for (int j = 0; j < NB; ++j) acc[r][j] += av * bv[j];
        }
        b += ldb;
        a += Packed ? R : 1;
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
        float* c = t.c + r * t.ldc;
#pragma GCC unroll 4
        for (int j = 0; j < NB; ++j) {
            int width = j == NB - 1 ? t.last : kLanes;
            if (width == kLanes) store(c + j * kLanes, t.accumulate ? acc[r][j] + load(c + j * kLanes) : acc[r][j]);
            else store_part(c + j * kLanes, t.accumulate ? acc[r][j] + load_part(c + j * kLanes, width) : acc[r][j], width);
        }
    }
}

using Micro = void (*)(const Tile&);
template <int NB, bool Packed> Micro micro_of_rows(int rows) {
    static constexpr Micro table[] = {micro<1, NB, Packed>, micro<2, NB, Packed>, micro<3, NB, Packed>, micro<4, NB, Packed>,
                                      micro<5, NB, Packed>, micro<6, NB, Packed>, micro<kMaxRows == 8 && NB < 4 ? 7 : 6, NB, Packed>,
                                      micro<kMaxRows == 8 && NB < 4 ? 8 : 6, NB, Packed>};
    return table[rows - 1];
}
template <bool Packed> Micro micro_for(int rows, int vectors) {
    switch (vectors) {
        case 1: return micro_of_rows<1, Packed>(rows);
        case 2: return micro_of_rows<2, Packed>(rows);
        case 3: return micro_of_rows<kPanelVectors == 4 ? 3 : 2, Packed>(rows);
        default: return micro_of_rows<kPanelVectors, Packed>(rows);
    }
}

int vectors_of(int64_t columns) { return static_cast<int>((columns + kLanes - 1) / kLanes); }
int last_of(int64_t columns) { return static_cast<int>(columns - (vectors_of(columns) - 1) * kLanes); }

template <class F> void epilogue_row(const Epilogue& e, int64_t r, int64_t columns, float* c, F f) {
    const float* residual = e.residual ? e.residual + r * e.ldr : nullptr;
    const vf alpha = splat(e.alpha), row = splat(e.row_bias ? e.row_bias[r] : 0.f);
    int64_t j = 0;
    for (; j + kLanes <= columns; j += kLanes) {
        vf v = load(c + j) * alpha + row;
        if (e.column_bias) v += load(e.column_bias + j);
        if (residual) v += load(residual + j);
        store(c + j, f(v));
    }
    if (j == columns) return;
    int left = static_cast<int>(columns - j);
    vf v = load_part(c + j, left) * alpha + row;
    if (e.column_bias) v += load_part(e.column_bias + j, left);
    if (residual) v += load_part(residual + j, left);
    store_part(c + j, f(v), left);
}

// Rows [0, m) x one panel of `columns` columns of C. B: k rows from b, ldb apart.
void panel_product(int64_t m, int64_t columns, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
                   float* c, int64_t ldc, const Epilogue& e, bool trivial) {
    const int vectors = vectors_of(columns);
    const int most = vectors == kPanelVectors ? kPackedRows : kMaxRows;
    const int64_t tiles = (m + most - 1) / most;
    Tile t{a, lda, b, ldb, c, ldc, 0, last_of(columns), false};
    for (int64_t p = 0; p == 0 || p < k; p += kBlockK) {
        t.k = std::min(k - p, kBlockK);
        t.b = b + p * ldb;
        t.accumulate = p > 0;
        bool finish = !trivial && p + kBlockK >= k;
        for (int64_t i = 0; i < tiles; ++i) {  // rows spread evenly: no tile is much shorter than the others
            int64_t row = m * i / tiles;
            int rows = static_cast<int>(m * (i + 1) / tiles - row);
            t.a = a + row * lda + p;
            t.c = c + row * ldc;
            micro_for<false>(rows, vectors)(t);
            if (finish) apply_epilogue(e.at(row, 0), rows, columns, t.c, ldc);
        }
    }
}

// A row-major block of `columns` <= kPanel columns into a panel of whole vectors.
void pack_panel_rows(const float* b, int64_t ld, int64_t k, int64_t columns, float* dst) {
    int64_t width = round_up(columns, kLanes);
    for (int64_t p = 0; p < k; ++p, dst += width) {
        std::memcpy(dst, b + p * ld, static_cast<size_t>(columns) * 4);
        for (int64_t j = columns; j < width; ++j) dst[j] = 0;
    }
}
void pack_panel_any(const float* b, int64_t rs, int64_t cs, int64_t k, int64_t columns, float* dst) {
    int64_t width = round_up(columns, kLanes);
    for (int64_t p = 0; p < k; ++p)
        for (int64_t j = 0; j < width; ++j) dst[p * width + j] = j < columns ? b[p * rs + j * cs] : 0.f;
}
// A transposed block: squares of whole vectors, then the rows that are left.
void pack_panel_columns(const float* b, int64_t ld, int64_t k, int64_t columns, float* dst) {
    const int64_t width = round_up(columns, kLanes), whole = k / kLanes * kLanes;
    for (int64_t j = 0; j < columns; j += kLanes)
        for (int64_t p = 0; p < whole; p += kLanes) {
            vf v[kLanes];
#pragma GCC unroll 16
            for (int i = 0; i < kLanes; ++i) v[i] = j + i < columns ? load(b + (j + i) * ld + p) : vf{};
            transpose(v);
#pragma GCC unroll 16
            for (int i = 0; i < kLanes; ++i) store(dst + (p + i) * width + j, v[i]);
        }
    pack_panel_any(b + whole, 1, ld, k - whole, columns, dst + whole * width);
}
void pack_panel(const float* b, int64_t rs, int64_t cs, int64_t k, int64_t columns, float* dst) {
    if (cs == 1) pack_panel_rows(b, rs, k, columns, dst);
    else if (rs == 1) pack_panel_columns(b, cs, k, columns, dst);
    else pack_panel_any(b, rs, cs, k, columns, dst);
}

// Rows of C that one task takes: all of them where there are panels enough for the threads, and never so many that
// their part of A leaves the second-level cache.
int64_t rows_of_task(int64_t m, int64_t panels, int64_t k, int threads) {
    int64_t rows = std::max<int64_t>(kPackedRows * 4, kSecondCacheBytes / 4 / std::max<int64_t>(k, 1));
    if (threads > 1 && panels < 4 * threads) rows = std::min(rows, (m * panels + 4 * threads - 1) / (4 * threads));
    return std::min(m, round_up(std::max<int64_t>(rows, 1), kPackedRows));
}

}  // namespace

Epilogue Epilogue::at(int64_t row, int64_t column) const {
    Epilogue e = *this;
    if (column_bias) e.column_bias += column;
    if (row_bias) e.row_bias += row;
    if (residual) e.residual += row * ldr + column;
    return e;
}

void apply_epilogue(const Epilogue& e, int64_t rows, int64_t columns, float* c, int64_t ldc) {
    with_activation(e.activation, [&](auto f) {
        for (int64_t r = 0; r < rows; ++r) epilogue_row(e, r, columns, c + r * ldc, f);
    });
}

void* scratch(int slot, size_t nbytes) {
    struct Held {
        std::shared_ptr<void> data;
        size_t size = 0;
    };
    thread_local Held held[4];
    Held& h = held[slot];
    if (h.size < nbytes) {
        h.data.reset();
        h.size = 0;
        h.data = aligned_buffer(nbytes);
        h.size = nbytes;
    }
    return h.data.get();
}

void pack_b(const float* b, int64_t rs, int64_t cs, int64_t k, int64_t n, float* dst, int threads) {
    int64_t panels = (n + kPanel - 1) / kPanel;
    parallel_for(k * n < 1 << 15 ? 1 : threads, panels, [&](int64_t p) {
        pack_panel(b + p * kPanel * cs, rs, cs, k, std::min<int64_t>(kPanel, n - p * kPanel), dst + p * kPanel * k);
    });
}
void pack_b_tail(const float* b, int64_t ld, int64_t k, int64_t n, float* dst) {
    int64_t left = n % kPanel;
    if (left) pack_panel_rows(b + n - left, ld, k, left, dst);
}
PackedB pack_b(const float* b, int64_t rs, int64_t cs, int64_t k, int64_t n) {
    PackedB packed{k, n, aligned_buffer(static_cast<size_t>(packed_b_count(k, n)) * 4)};
    pack_b(b, rs, cs, k, n, static_cast<float*>(packed.data.get()));
    return packed;
}
PackedA pack_a(const float* a, int64_t rs, int64_t cs, int64_t m, int64_t k) {
    PackedA packed{m, k, aligned_buffer(static_cast<size_t>(m * k) * 4)};
    float* dst = static_cast<float*>(packed.data.get());
    for (int64_t i = 0; i < m; i += kPackedRows) {
        int64_t rows = std::min<int64_t>(kPackedRows, m - i);
        for (int64_t p = 0; p < k; ++p)
            for (int64_t r = 0; r < rows; ++r) *dst++ = a[(i + r) * rs + p * cs];
    }
    return packed;
}

void gemm(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const BView& b, float* c, int64_t ldc,
          const Epilogue& e, int threads) {
    if (m <= 0 || n <= 0) return;
    if (static_cast<double>(m) * n * k < kSerialWork) threads = 1;
    const int64_t panels = (n + kPanel - 1) / kPanel, step = rows_of_task(m, panels, k, threads);
    const int64_t pieces = (m + step - 1) / step;
    const bool trivial = e.trivial();
    parallel_for(threads, pieces * panels, [&](int64_t task) {
        int64_t p = task % panels, row = task / panels * step, column = p * kPanel;
        int64_t rows = std::min(step, m - row), columns = std::min<int64_t>(kPanel, n - column);
        bool tail = b.tail && columns < kPanel;
        int64_t ldb = b.stride && !tail ? b.stride : round_up(columns, kLanes);
        panel_product(rows, columns, k, a + row * lda, lda, tail ? b.tail : b.data + p * b.panel_stride, ldb,
                      c + row * ldc + column, ldc, e.at(row, column), trivial);
    });
}

void gemv(int64_t m, int64_t k, const float* a, int64_t lda, const float* x, float* y, int64_t ldy, const Epilogue& e,
          int threads) {
    int64_t grain = std::max<int64_t>(1, static_cast<int64_t>(kSerialWork) / std::max<int64_t>(k, 1));
    parallel_ranges(threads, m, grain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const float* row = a + i * lda;
            vf s[4] = {};
            int64_t p = 0;
            for (; p + 4 * kLanes <= k; p += 4 * kLanes)
                for (int j = 0; j < 4; ++j) s[j] += load(row + p + j * kLanes) * load(x + p + j * kLanes);
            for (; p + kLanes <= k; p += kLanes) s[0] += load(row + p) * load(x + p);
            if (p < k) s[1] += load_part(row + p, static_cast<int>(k - p)) * load_part(x + p, static_cast<int>(k - p));
            y[i * ldy] = sum((s[0] + s[1]) + (s[2] + s[3]));
        }
        if (!e.trivial()) apply_epilogue(e.at(begin, 0), end - begin, 1, y + begin * ldy, ldy);
    });
}

namespace {

// The columns [n0, n1) of C: B's block of kc rows is made once and meets every row of A.
void filled_columns(const PackedA& a, int64_t n0, int64_t n1, int64_t kc, const FillPanel& fill, float* c, int64_t ldc,
                    const Epilogue& e) {
    const int64_t panels = (n1 - n0 + kPanel - 1) / kPanel;
    const bool trivial = e.trivial();
    float* block = static_cast<float*>(scratch(0, static_cast<size_t>(std::min(kc, a.k) * panels * kPanel) * 4));
    for (int64_t k0 = 0; k0 == 0 || k0 < a.k; k0 += kc) {
        const int64_t depth = std::min(kc, a.k - k0);
        const bool finish = !trivial && k0 + kc >= a.k;
        for (int64_t p = 0; p < panels && depth; ++p) {
            int64_t begin = n0 + p * kPanel, end = std::min(n1, begin + kPanel);
            fill(k0, k0 + depth, begin, end, block + p * kPanel * depth, round_up(end - begin, kLanes));
        }
        for (int64_t row = 0; row < a.m; row += kPackedRows) {
            const int rows = static_cast<int>(std::min<int64_t>(kPackedRows, a.m - row));
            for (int64_t p = 0; p < panels; ++p) {
                int64_t begin = n0 + p * kPanel, columns = std::min(n1, begin + kPanel) - begin;
                Tile t{a.panel(row) + k0 * rows, 0, block + p * kPanel * depth, round_up(columns, kLanes),
                       c + row * ldc + begin, ldc, depth, last_of(columns), k0 > 0};
                micro_for<true>(rows, vectors_of(columns))(t);
                if (finish) apply_epilogue(e.at(row, begin), rows, columns, t.c, ldc);
            }
        }
    }
}

}  // namespace

void gemm_filled(const PackedA& a, int64_t n, const FillPanel& fill, float* c, int64_t ldc, const Epilogue& e, int threads) {
    if (a.m <= 0 || n <= 0) return;
    if (static_cast<double>(a.m) * n * a.k < kSerialWork) threads = 1;
    const int64_t kc = std::max<int64_t>(1, std::min<int64_t>(a.k, 256));
    const int64_t fit = std::max<int64_t>(1, kSecondCacheBytes / 2 / (kc * kPanel * 4));  // panels of one block
    const int64_t all = (n + kPanel - 1) / kPanel;
    const int64_t share = threads > 1 ? (all + 2 * threads - 1) / (2 * threads) : all;
    const int64_t step = std::min(fit, share) * kPanel;
    parallel_for(threads, (n + step - 1) / step, [&](int64_t task) {
        filled_columns(a, task * step, std::min(n, (task + 1) * step), kc, fill, c, ldc, e);
    });
}

void register_gemm(Registry&) {}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
