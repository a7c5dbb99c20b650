// Products of 8-bit matrices with 32-bit sums, the engine under the integer MatMuls and the quantised recurrent nets.
//
//   C[i][j] = sum over p of (A[i][p] - a_zero[i]) * (B[p][j] - b_zero[j])
//
// Where the processor has VNNI, a 32-bit word holds four elements of K (A unsigned, B signed, as vpdpbusd wants them);
// elsewhere it holds two, as 16-bit integers, whose products and pairwise sums fit 32 bits without saturation. Operands
// of the other signedness are moved by 128; zero points are taken out afterwards with the sums of rows and columns.
#pragma once

#include <functional>
#include <vector>

#include "kernels/gemm.h"

namespace opweave {
namespace OPWEAVE_ISA {

#if defined(__AVX512VNNI__)
constexpr int kGroup = 4;  // elements of K in a word
#else
constexpr int kGroup = 2;
#endif

// Element (i, j) at data[i * row + j * column], uint8 or int8.
struct ByteMatrix {
    const uint8_t* data = nullptr;
    bool is_signed = false;
    int64_t row = 0, column = 1;
};

// B in panels of kPanel columns, each [k in words][columns in whole vectors], the last panel narrower.
struct PackedBytes {
    int64_t k = 0, n = 0;
    bool was_signed = false;
    std::shared_ptr<const void> words;
    std::vector<int32_t> column_sums;  // of the elements as packed
};
PackedBytes pack_bytes(const ByteMatrix& b, int64_t k, int64_t n);
// The same into memory of the caller, packed_bytes_size() bytes, which the result refers to.
PackedBytes pack_bytes(const ByteMatrix& b, int64_t k, int64_t n, void* words);
size_t packed_bytes_size(int64_t k, int64_t n);

// The values of a zero point: one for all (step 0), or one a row, respectively a column (step 1).
struct ZeroPoint {
    const int32_t* values = nullptr;  // null: zero
    int step = 0;
    int32_t operator[](int64_t i) const { return values ? values[i * step] : 0; }
};

// Receives rows x columns of C, which begin at (row, column); element (r, j) is at tile[r * kPanel + j]. Called from
// several threads at once, for different parts.
using FinishTile = std::function<void(const int32_t* tile, int64_t row, int64_t column, int64_t rows, int64_t columns)>;

// A's rows must be contiguous. Uses slot 3 of scratch().
void byte_gemm(int64_t m, const ByteMatrix& a, ZeroPoint a_zero, const PackedBytes& b, ZeroPoint b_zero, const FinishTile& finish,
               int threads);

// Dynamic quantisation to uint8 over the whole tensor. https://onnx.ai/onnx/operators/onnx__DynamicQuantizeLinear.html
struct DynamicScale {
    float scale = 1;
    int32_t zero = 0;
};
DynamicScale dynamic_scale(const float* x, int64_t n);
void quantize(const float* x, int64_t n, DynamicScale s, uint8_t* y);

}  // namespace OPWEAVE_ISA
}  // namespace opweave
