// Matrix products over operands as operators give them: batches that broadcast, either operand transposed, any type.
// float32 goes to the engine of gemm.h; narrow types are widened to it; the others have plain loops that the compiler
// vectorises.
#pragma once

#include <vector>

#include "kernels/broadcast.h"
#include "kernels/gemm.h"
#include "kernels/narrow.h"

namespace opweave {
namespace OPWEAVE_ISA {

// Element (i, j) of a matrix lies at i * row + j * column.
struct Strides {
    int64_t row = 0, column = 0;
};

struct Transposes {
    bool a = false, b = false;
    bool batch_a = false, batch_b = false;  // the first axis is the row axis, before `a` and `b` apply (com.microsoft)
};

// C[b] = A[b] x B[b] for every b of the broadcast batch.
struct MatrixLayout {
    int64_t m = 1, n = 1, k = 1, batch = 1;
    Strides a, b;
    std::vector<int64_t> a_offset, b_offset;  // of each batch entry, in elements
    Shape out;
    double flops() const { return 2.0 * static_cast<double>(m * n) * static_cast<double>(k) * static_cast<double>(batch); }
};

// Operands of one dimension are a row, respectively a column, that the output does not have.
// https://numpy.org/doc/stable/reference/generated/numpy.matmul.html
MatrixLayout matrix_layout(const Shape& a, const Shape& b, Transposes t = {});

struct FloatMatrix {
    const float* data;
    Strides strides;
};

// C[m,n] = epilogue(A x B), row-major C with rows ldc apart. Uses slots 0 to 3 of scratch().
void product(int64_t m, int64_t n, int64_t k, FloatMatrix a, FloatMatrix b, float* c, int64_t ldc, const Epilogue& epilogue,
             int threads);
// The same with B packed; A may have any strides.
void product(int64_t m, FloatMatrix a, const PackedB& b, float* c, int64_t ldc, const Epilogue& epilogue, int threads);

// y = x^T: y[j * rows + i] = x[i * ld + j].
void transpose(const float* x, int64_t ld, int64_t rows, int64_t columns, float* y, int64_t ldy);

// C[m,n] = A x B for a type that has no engine. Integers wrap.
template <class T> void plain_product(int64_t m, int64_t n, int64_t k, const T* a, Strides as, const T* b, Strides bs, T* c) {
    std::vector<T> row_major;
    if (bs.column != 1) {
        row_major.resize(static_cast<size_t>(k * n));
        for (int64_t p = 0; p < k; ++p)
            for (int64_t j = 0; j < n; ++j) row_major[static_cast<size_t>(p * n + j)] = b[p * bs.row + j * bs.column];
        b = row_major.data();
        bs = {n, 1};
    }
    constexpr int64_t kColumns = 512, kDepth = 64;
    std::fill(c, c + m * n, T{});
    for (int64_t j0 = 0; j0 < n; j0 += kColumns)
        for (int64_t p0 = 0; p0 < k; p0 += kDepth) {
            const int64_t columns = std::min(kColumns, n - j0), p1 = std::min(k, p0 + kDepth);
            for (int64_t i = 0; i < m; ++i) {
                T* __restrict to = c + i * n + j0;
                for (int64_t p = p0; p < p1; ++p) {
                    const T x = a[i * as.row + p * as.column];
                    const T* __restrict from = b + p * bs.row + j0;
                    for (int64_t j = 0; j < columns; ++j) to[j] = static_cast<T>(to[j] + x * from[j]);
                }
            }
        }
}

// f(batch index, threads it may use): whole entries go to threads where there are enough, else each entry is shared out.
template <class F> void for_each_batch(int threads, int64_t batch, double work, F&& f) {
    if (work < 1e5) threads = 1;
    if (batch >= 2 * threads) parallel_ranges(threads, batch, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) f(i, 1);
    });
    else for (int64_t i = 0; i < batch; ++i) f(i, threads);
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
