// The engine of elementwise operators: block after block, every operand is broadcast and converted to the type it is
// computed in, then one function computes the block. Operators differ in that function only.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "kernels/broadcast.h"
#include "kernels/cast.h"
#include "kernels/dtypes.h"
#include "kernels/vmath.h"

namespace opweave {
namespace OPWEAVE_ISA {

struct Params { double a = 0, b = 0; };  // attributes of an operator

// out[i] = f(in[0][i], in[1][i], ...) for i < n. An omitted operand is null. `out` may be one of the operands.
using BlockFn = void (*)(const void* const* in, void* out, int64_t n, const Params& params);

constexpr int kMostOperands = 3;

struct Operation {
    BlockFn fn = nullptr;
    DType in[kMostOperands] = {DType::Undefined, DType::Undefined, DType::Undefined};  // computed in; Undefined: as stored
    DType computed = DType::Undefined;  // what fn writes
    DType result = DType::Undefined;    // the output
    Params params;
};

// One operand of blocks.
class BlockSource {
  public:
    BlockSource() = default;
    BlockSource(const TensorDesc& operand, const Shape& out, DType computed);
    size_t workspace() const { return workspace_; }
    // Sets up the operand for one run. `workspace` has workspace() bytes, which stay readable while blocks are read.
    void open(const void* data, char* workspace) const;
    // Elements [start, start + n) as the output sees them, n <= kBlock; `buffer` holds kBlock elements of 8 bytes.
    const void* block(const void* data, const char* workspace, int64_t start, int64_t n, char* buffer) const;

  private:
    Broadcast layout_{Shape{}, Shape{}};
    Converter convert_;
    size_t stored_ = 0, size_ = 0, workspace_ = 0;
};

// f16 and bf16 (and float8, where an operator takes it) are computed in f32, bool as bytes.
DType compute_type(DType stored);
// Same type in and out.
Operation plain_operation(DType stored, BlockFn fn, Params params = {});
// A boolean result.
Operation test_operation(DType stored, BlockFn fn, Params params = {});

using Chooser = std::function<Operation(const NodeSpec&)>;
// An operator of `operands` inputs, of which the first `required` must be present.
void add_elementwise(Registry& r, const char* op, int required, int operands, Chooser choose);
// An operator of any number of inputs of one type, folded pairwise; `finish` gets the number of inputs as params.a.
void add_variadic(Registry& r, const char* op, std::function<BlockFn(DType)> fold, std::function<BlockFn(DType)> finish = nullptr);

std::unique_ptr<Kernel> make_elementwise(const NodeSpec& spec, const Operation& op, int operands);

// The operation of an elementwise operator on the types of `spec`, for a kernel that does several in one pass. Throws
// Unsupported for other operators, and for variadic ones of other than two inputs.
Operation operation_of(const NodeSpec& spec);

// The type of a required input, and of two that must have the same.
DType dtype_of_input(const NodeSpec& spec, size_t i);
DType common_type(const NodeSpec& spec);

// y[i] = f(x[i]) over float32 vectors.
template <class F> inline void map_vectors(const float* x, float* y, int64_t n, F f) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(y + i, f(load(x + i)));
    if (i < n) store_part(y + i, f(load_part(x + i, static_cast<int>(n - i))), static_cast<int>(n - i));
}
template <class F> inline void map_vectors(const float* a, const float* b, float* y, int64_t n, F f) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(y + i, f(load(a + i), load(b + i)));
    int left = static_cast<int>(n - i);
    if (left > 0) store_part(y + i, f(load_part(a + i, left), load_part(b + i, left)), left);
}

// Block functions from functors on vectors of float32 and on scalars of other types.
template <class Op, class T> void unary_block(const void* const* in, void* out, int64_t n, const Params& p) {
    const T* x = static_cast<const T*>(in[0]);
    T* y = static_cast<T*>(out);
    const Op op{};
    const Params local = p;
    if constexpr (std::is_same_v<T, float>) {
        map_vectors(x, y, n, [&](vf v) { return op(v, local); });
    } else {
        for (int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(op(x[i], local));
    }
}
template <class Op, class T> void binary_block(const void* const* in, void* out, int64_t n, const Params&) {
    const T *a = static_cast<const T*>(in[0]), *b = static_cast<const T*>(in[1]);
    T* y = static_cast<T*>(out);
    const Op op{};
    if constexpr (std::is_same_v<T, float> && std::is_invocable_v<Op, vf, vf>) {
        map_vectors(a, b, y, n, [&](vf u, vf v) { return op(u, v); });
    } else {
        for (int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(op(a[i], b[i]));
    }
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
