// One total order for sorting and selecting: every element becomes an unsigned key. Zeros of both signs are equal, and
// NaN, all of them equal, comes after everything, as in NumPy.
#pragma once

#include <cstring>

#include "kernels/narrow.h"

namespace opweave {
namespace OPWEAVE_ISA {

template <class T> using key_t = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <class T> key_t<T> order_key(T x) {
    using K = key_t<T>;
    if constexpr (is_real<T>) {
        const wide_t<T> wide = widen(x) + 0;  // no negative zero
        if (wide != wide) return ~K{};
        K bits;
        std::memcpy(&bits, &wide, sizeof bits);
        constexpr K sign = K{1} << (8 * sizeof(K) - 1);
        return bits & sign ? ~bits : bits | sign;
    } else if constexpr (std::is_signed_v<T>) {
        return static_cast<K>(static_cast<std::make_signed_t<K>>(x)) ^ (K{1} << (8 * sizeof(K) - 1));
    } else {
        return x;
    }
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
