// Matrix products in float32, the engine under MatMul, Gemm, recurrent nets, attention and convolution.
//
//   C[m,n] = epilogue(A[m,k] x B[k,n])          row-major, C and A with row strides ldc, lda (in elements)
//
// One micro-kernel computes R rows x NB vectors of C in registers (6x4 where there are 32 vector registers, else 6x2):
// it broadcasts elements of A and reads B a panel (kPanel columns) at a time. What differs is who is packed:
//   gemm()         B packed in panels (PackedB: made once for weights) or read in place (BView::rows), A read in place.
//                  For activations x weights.
//   gemm_filled()  A packed (PackedA: made once), B's panels are made on the fly by a callback, a cache-sized block at
//                  a time. For NCHW convolution: C[oc][pixel] = W[oc][k] x B[k][pixel], B never materialised; and for
//                  strided, transposed or converted B.
// K is cut in blocks so that a panel of B stays in the first-level cache. Epilogues run on each tile as it is finished.
// C must not overlap A or B. k may be 0 (C is then epilogue(0)); m or n may be 0.
#pragma once

#include <functional>
#include <memory>

#include "kernels/activation.h"

namespace opweave {
namespace OPWEAVE_ISA {

#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kPanelVectors = 4;
#else
constexpr int kPanelVectors = 2;
#endif
constexpr int kPanel = kPanelVectors * kLanes;  // columns of a panel; the last one of a matrix is narrower, in whole vectors
constexpr int kPackedRows = 6;                  // rows of a panel of PackedA; the last one may have fewer

inline int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// C = activation(alpha * AB + bias + residual). The residual must not overlap C: C holds partial sums on the way.
struct Epilogue {
    float alpha = 1;
    const float* column_bias = nullptr;  // n values
    const float* row_bias = nullptr;     // m values
    const float* residual = nullptr;     // m rows of n values, stride ldr (0: one row for all)
    int64_t ldr = 0;
    ActivationSpec activation;
    bool trivial() const {
        return alpha == 1 && !column_bias && !row_bias && !residual && activation.kind == Activation::None;
    }
    Epilogue at(int64_t row, int64_t column) const;  // the same for the part of C that begins there
};

// Where a B lies: panel p begins at data + p * panel_stride, its rows are `stride` apart (0: as wide as the panel).
struct BView {
    const float* data = nullptr;
    int64_t panel_stride = 0, stride = 0;
    const float* tail = nullptr;  // the packed last panel, when B is read in place and its last panel is not full
    // B row-major with `ld` elements a row, read in place. `tail` from pack_b_tail(); not needed when n % kLanes == 0.
    static BView rows(const float* b, int64_t ld, const float* tail) { return {b, kPanel, ld, tail}; }
    static BView packed(const float* panels, int64_t k) { return {panels, k * kPanel, 0, nullptr}; }
};

// Floats of B[k,n] in panels.
inline int64_t packed_b_count(int64_t k, int64_t n) { return k * round_up(n, kLanes); }
// Packs B with B[i,j] at b[i * row_stride + j * column_stride] (either stride may be 1). dst: 64-byte aligned.
void pack_b(const float* b, int64_t row_stride, int64_t column_stride, int64_t k, int64_t n, float* dst, int threads = 1);
// Packs the columns past the last full panel: packed_b_count(k, n % kPanel) floats.
void pack_b_tail(const float* b, int64_t ld, int64_t k, int64_t n, float* dst);

// A constant B, owned.
struct PackedB {
    int64_t k = 0, n = 0;
    std::shared_ptr<void> data;
    BView view() const { return BView::packed(static_cast<const float*>(data.get()), k); }
};
PackedB pack_b(const float* b, int64_t row_stride, int64_t column_stride, int64_t k, int64_t n);

// A constant A, owned: panels of kPackedRows rows, each [k][rows], the last with the rows that are left.
struct PackedA {
    int64_t m = 0, k = 0;
    std::shared_ptr<void> data;
    const float* panel(int64_t row) const { return static_cast<const float*>(data.get()) + row * k; }
};
PackedA pack_a(const float* a, int64_t row_stride, int64_t column_stride, int64_t m, int64_t k);

// C = epilogue(A x B). A[i,p] at a[i * lda + p].
void gemm(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const BView& b, float* c, int64_t ldc,
          const Epilogue& epilogue, int threads);
// y[i] = dot(A[i,:], x) for i in [0, m): the product with one column, both rows and x contiguous. Epilogue as for n = 1.
void gemv(int64_t m, int64_t k, const float* a, int64_t lda, const float* x, float* y, int64_t ldy,
          const Epilogue& epilogue, int threads);

// Writes B[k0:k1, n0:n1] to dst, rows `stride` apart: dst[(i - k0) * stride + (j - n0)]. n1 - n0 is at most kPanel, and
// stride is n1 - n0 in whole vectors; what lies between may be left as it is. n0 is a multiple of kPanel. Called from
// several threads at once, for different parts.
using FillPanel = std::function<void(int64_t k0, int64_t k1, int64_t n0, int64_t n1, float* dst, int64_t stride)>;
// C[a.m, n] = epilogue(A x B) with B's panels made by `fill`.
void gemm_filled(const PackedA& a, int64_t n, const FillPanel& fill, float* c, int64_t ldc, const Epilogue& epilogue,
                 int threads);

// Applies an epilogue to C in place (for results that another path computed).
void apply_epilogue(const Epilogue& epilogue, int64_t rows, int64_t columns, float* c, int64_t ldc);

// 64-byte aligned memory of this thread, at least nbytes, kept and reused. Different `slot`s (0..3) do not overlap; a
// caller must not call anything that uses the same slot while it still needs its content. Slot 0 belongs to gemm_filled().
void* scratch(int slot, size_t nbytes);

}  // namespace OPWEAVE_ISA
}  // namespace opweave
