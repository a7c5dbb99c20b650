// Layout of matrix products (product.h), and how a float32 product with any strides meets the engine of gemm.h.
#include "kernels/product.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

// One operand: its matrix and its batch axes.
struct MatrixView {
    int64_t rows = 1, columns = 1;
    Strides strides;
    Shape batch;
    int64_t batch_strides[kMaxRank] = {};
};

MatrixView view_of(const Shape& s, bool transposed, bool batch_transposed) {
    MatrixView v;
    const int row_axis = batch_transposed ? 0 : s.rank - 2;
    v.rows = s[row_axis];
    v.columns = s.back();
    v.strides = {s.count(row_axis + 1), 1};
    for (int axis = 0; axis < s.rank - 1; ++axis) {
        if (axis == row_axis) continue;
        v.batch_strides[v.batch.rank] = s.count(axis + 1);
        v.batch.push_back(s[axis]);
    }
    if (transposed) {
        std::swap(v.rows, v.columns);
        std::swap(v.strides.row, v.strides.column);
    }
    return v;
}

// Appends where every entry of the broadcast `batch` begins in an operand.
std::vector<int64_t> offsets_of(const MatrixView& v, const Shape& batch) {
    std::vector<int64_t> offsets{0};
    for (int axis = 0; axis < batch.rank; ++axis) {
        const int own = axis - (batch.rank - v.batch.rank);
        const int64_t step = own < 0 || v.batch[own] == 1 ? 0 : v.batch_strides[own];
        std::vector<int64_t> next;
        next.reserve(offsets.size() * static_cast<size_t>(batch[axis]));
        for (int64_t base : offsets)
            for (int64_t i = 0; i < batch[axis]; ++i) next.push_back(base + i * step);
        offsets = std::move(next);
    }
    return offsets;
}

Shape broadcast_batches(const Shape& a, const Shape& b) {
    const Tensor operands[] = {{{DType::F32, a}, nullptr}, {{DType::F32, b}, nullptr}};
    return broadcast_shape(operands, 2);
}

// One B for all rows of A: the batch is more rows.
void fold_batch(MatrixLayout& l, const MatrixView& a, const MatrixView& b) {
    const bool whole = a.strides.column == 1 && a.strides.row == a.columns && a.batch.count() == l.batch;
    for (int axis = 0; axis + 1 < a.batch.rank; ++axis)
        if (a.batch_strides[axis] != a.batch_strides[axis + 1] * a.batch[axis + 1]) return;
    if (!whole || b.batch.count() != 1 || (a.batch.rank > 0 && a.batch_strides[a.batch.rank - 1] != a.rows * a.columns)) return;
    l.m *= l.batch;
    l.batch = 1;
}

constexpr int64_t kPackFrom = 48;  // rows of A from which packing a row-major B pays

}  // namespace

MatrixLayout matrix_layout(const Shape& a, const Shape& b, Transposes t) {
    if (a.rank < 1 || b.rank < 1) throw BadOperand("a matrix product needs operands of at least one dimension");
    const bool row = a.rank == 1, column = b.rank == 1;
    if ((row && (t.a || t.batch_a)) || (column && (t.b || t.batch_b))) throw BadOperand("an operand of one dimension cannot be transposed");
    MatrixView va = view_of(row ? Shape{1, a[0]} : a, t.a, t.batch_a), vb = view_of(column ? Shape{b[0], 1} : b, t.b, t.batch_b);
    if (va.columns != vb.rows) throw BadOperand("the product of " + a.str() + " and " + b.str() + " adds up " + std::to_string(va.columns) + " against " + std::to_string(vb.rows) + " elements");
    MatrixLayout l;
    l.out = broadcast_batches(va.batch, vb.batch);
    l.m = va.rows, l.n = vb.columns, l.k = va.columns, l.a = va.strides, l.b = vb.strides;
    const Shape batch = l.out;
    if (!row) l.out.push_back(l.m);
    if (!column) l.out.push_back(l.n);
    if (l.out.count() == 0) {
        l.batch = 0;
        return l;
    }
    l.batch = batch.count();
    fold_batch(l, va, vb);
    const Shape left = l.batch == 1 ? Shape{} : batch;
    l.a_offset = offsets_of(va, left);
    l.b_offset = offsets_of(vb, left);
    return l;
}

void transpose(const float* x, int64_t ld, int64_t rows, int64_t columns, float* y, int64_t ldy) {
    for (int64_t i = 0; i < rows; i += kLanes)
        for (int64_t j = 0; j < columns; j += kLanes) {
            const int height = static_cast<int>(std::min<int64_t>(kLanes, rows - i)), width = static_cast<int>(std::min<int64_t>(kLanes, columns - j));
            vf v[kLanes] = {};
            for (int r = 0; r < height; ++r) v[r] = width == kLanes ? load(x + (i + r) * ld + j) : load_part(x + (i + r) * ld + j, width);
            transpose(v);
            for (int c = 0; c < width; ++c) store_part(y + (j + c) * ldy + i, v[c], height);
        }
}

namespace {

// A with contiguous rows: as it is, or copied to scratch slot 3.
FloatMatrix with_rows(FloatMatrix a, int64_t m, int64_t k) {
    if (a.strides.column == 1 || k <= 1) return a;
    float* copy = static_cast<float*>(scratch(3, static_cast<size_t>(m * k) * 4));
    if (a.strides.row == 1) {
        transpose(a.data, a.strides.column, k, m, copy, k);
    } else {
        for (int64_t i = 0; i < m; ++i)
            for (int64_t p = 0; p < k; ++p) copy[i * k + p] = a.data[i * a.strides.row + p * a.strides.column];
    }
    return {copy, {k, 1}};
}

// One column: dot products.
void column_product(int64_t m, int64_t k, FloatMatrix a, FloatMatrix b, float* c, int64_t ldc, const Epilogue& e, int threads) {
    const float* x = b.data;
    if (b.strides.row != 1) {
        float* copy = static_cast<float*>(scratch(2, static_cast<size_t>(k) * 4));
        for (int64_t p = 0; p < k; ++p) copy[p] = x[p * b.strides.row];
        x = copy;
    }
    gemv(m, k, a.data, a.strides.row, x, c, ldc, e, threads);
}

// One row times a transposed B: the same with the operands exchanged.
void row_product(int64_t n, int64_t k, FloatMatrix a, FloatMatrix b, float* c, const Epilogue& e, int threads) {
    Epilogue exchanged = e;
    exchanged.column_bias = e.row_bias;
    exchanged.row_bias = e.column_bias;
    exchanged.ldr = 1;
    gemv(n, k, b.data, b.strides.column, a.data, c, 1, exchanged, threads);
}

}  // namespace

void product(int64_t m, int64_t n, int64_t k, FloatMatrix a, FloatMatrix b, float* c, int64_t ldc, const Epilogue& e, int threads) {
    if (m <= 0 || n <= 0) return;
    a = with_rows(a, m, k);
    if (n == 1) return column_product(m, k, a, b, c, ldc, e, threads);
    if (b.strides.row == 1 && m == 1) return row_product(n, k, a, b, c, e, threads);
    const int64_t tail = n % kPanel;
    const bool in_place = b.strides.column == 1 && m < kPackFrom;
    if (in_place && n % kLanes == 0) return gemm(m, n, k, a.data, a.strides.row, BView::rows(b.data, b.strides.row, nullptr), c, ldc, e, threads);
    float* panels = static_cast<float*>(scratch(2, static_cast<size_t>(packed_b_count(k, in_place ? tail : n)) * 4));
    if (in_place) {
        pack_b_tail(b.data, b.strides.row, k, n, panels);
        return gemm(m, n, k, a.data, a.strides.row, BView::rows(b.data, b.strides.row, panels), c, ldc, e, threads);
    }
    pack_b(b.data, b.strides.row, b.strides.column, k, n, panels, threads);
    gemm(m, n, k, a.data, a.strides.row, BView::packed(panels, k), c, ldc, e, threads);
}

void product(int64_t m, FloatMatrix a, const PackedB& b, float* c, int64_t ldc, const Epilogue& e, int threads) {
    if (m <= 0) return;
    a = with_rows(a, m, b.k);
    gemm(m, b.n, b.k, a.data, a.strides.row, b.view(), c, ldc, e, threads);
}

void register_product(Registry&) {}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
