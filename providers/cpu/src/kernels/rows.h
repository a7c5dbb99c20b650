// Operands of ai.onnx.ml: rows of numbers of any type that those operators take.
#pragma once

#include "core/kernel.h"
#include "kernels/dtypes.h"

namespace opweave {
namespace OPWEAVE_ISA {

using RowTypes = Types<float, double, f16, int64_t, int32_t>;

inline void expect_numbers(DType dtype) {
    visit<RowTypes>(dtype, [](auto) {});
}

// Elements [at, at + n) as `A`. Integers pass through float32, as in the reference implementation.
template <class A> void read_numbers(const Tensor& t, int64_t at, A* to, int64_t n) {
    visit<RowTypes>(t.dtype(), [&](auto type) {
        using T = decltype(type);
        const T* from = t.as<T>() + at;
        for (int64_t i = 0; i < n; ++i) {
            if constexpr (std::is_integral_v<T>) to[i] = static_cast<A>(static_cast<float>(from[i]));
            else to[i] = static_cast<A>(widen(from[i]));
        }
    });
}

// A matrix, or one row.
struct RowsOf {
    int64_t rows = 1, width = 0;
    explicit RowsOf(const Shape& s) {
        if (s.rank < 1 || s.rank > 2) throw BadOperand("the input must be a matrix, its shape is " + s.str());
        if (s.rank == 2) rows = s[0];
        width = s.back();
    }
};

}  // namespace OPWEAVE_ISA
}  // namespace opweave
