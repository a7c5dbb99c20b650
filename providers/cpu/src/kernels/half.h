// float16 and bfloat16 as storage types: computed in float, rounded to nearest even on the way out.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/tensor.h"

namespace opweave {
namespace OPWEAVE_ISA {

struct Half {
    _Float16 bits;
    operator float() const { return static_cast<float>(bits); }
    Half() = default;
    Half(float x) : bits(static_cast<_Float16>(x)) {}
};

struct BHalf {
    uint16_t bits;
    operator float() const {
        uint32_t wide = static_cast<uint32_t>(bits) << 16;
        float x;
        std::memcpy(&x, &wide, 4);
        return x;
    }
    BHalf() = default;
    BHalf(float x) {
        uint32_t wide;
        std::memcpy(&wide, &x, 4);
        bool nan = (wide & 0x7fffffffu) > 0x7f800000u;
        bits = static_cast<uint16_t>(nan ? (wide >> 16) | 0x40u : (wide + 0x7fffu + ((wide >> 16) & 1)) >> 16);
    }
};

// The type that sums of T are kept in.
template <class T> struct AccumulatorOf { using type = T; };
template <> struct AccumulatorOf<Half> { using type = float; };
template <> struct AccumulatorOf<BHalf> { using type = float; };
template <class T> using Accumulator = typename AccumulatorOf<T>::type;

}  // namespace OPWEAVE_ISA
}  // namespace opweave
