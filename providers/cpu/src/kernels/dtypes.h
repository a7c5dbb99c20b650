// From a run-time element type to a compile-time one: visit(dtype, list, body) calls body(T{}) for the type in the list
// that `dtype` names, or refuses the node. bool is computed on as uint8.
#pragma once

#include "core/kernel.h"
#include "kernels/narrow.h"

namespace opweave {
namespace OPWEAVE_ISA {

template <class... Ts> struct Types {};
using FloatTypes = Types<float, double, f16, bf16>;
using WideTypes = Types<float, double, f16, bf16, int32_t, int64_t, uint32_t, uint64_t>;
using NumberTypes = Types<float, double, f16, bf16, int32_t, int64_t, uint32_t, uint64_t, int8_t, uint8_t, int16_t, uint16_t>;

template <class T> constexpr DType dtype_of() {
    if constexpr (std::is_same_v<T, float>) return DType::F32;
    else if constexpr (std::is_same_v<T, double>) return DType::F64;
    else if constexpr (std::is_same_v<T, f16>) return DType::F16;
    else if constexpr (std::is_same_v<T, bf16>) return DType::BF16;
    else if constexpr (std::is_same_v<T, int8_t>) return DType::I8;
    else if constexpr (std::is_same_v<T, uint8_t>) return DType::U8;
    else if constexpr (std::is_same_v<T, int16_t>) return DType::I16;
    else if constexpr (std::is_same_v<T, uint16_t>) return DType::U16;
    else if constexpr (std::is_same_v<T, int32_t>) return DType::I32;
    else if constexpr (std::is_same_v<T, uint32_t>) return DType::U32;
    else if constexpr (std::is_same_v<T, int64_t>) return DType::I64;
    else { static_assert(std::is_same_v<T, uint64_t>); return DType::U64; }
}

template <class R, class T, class... Rest, class F> R visit_types(DType dtype, Types<T, Rest...>, F&& body) {
    if (dtype == dtype_of<T>()) return body(T{});
    if constexpr (sizeof...(Rest) > 0) return visit_types<R>(dtype, Types<Rest...>{}, body);
    throw Unsupported(std::string("no native kernel for ") + name_of(dtype));
}
template <class List, class F> auto visit(DType dtype, F&& body) {
    return visit_types<decltype(body(float{}))>(dtype == DType::Bool ? DType::U8 : dtype, List{}, body);
}

// Elements [at, at + n) of an operand of any real type, for operands whose type differs from the one computed in.
template <class A> void read_reals(DType dtype, const void* data, int64_t at, A* to, int64_t n) {
    visit<FloatTypes>(dtype, [&](auto t) {
        const auto* from = static_cast<const decltype(t)*>(data) + at;
        for (int64_t i = 0; i < n; ++i) to[i] = static_cast<A>(widen(from[i]));
    });
}
template <class A> void write_reals(DType dtype, const A* from, void* data, int64_t at, int64_t n) {
    visit<FloatTypes>(dtype, [&](auto t) {
        using T = decltype(t);
        T* to = static_cast<T*>(data) + at;
        for (int64_t i = 0; i < n; ++i) to[i] = narrow<T>(static_cast<wide_t<T>>(from[i]));
    });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
