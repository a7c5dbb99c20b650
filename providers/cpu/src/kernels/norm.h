// What normalisations share: statistics of a contiguous run and the affine map after them. Where y is x, and through
// `ivdep`, loops stay vectorised: element i of the result depends on element i alone.
#pragma once

#include <cmath>

#include "kernels/broadcast.h"
#include "kernels/reduce.h"

namespace opweave {
namespace OPWEAVE_ISA {

constexpr int64_t kNormGrain = 1 << 14;  // elements worth a thread

template <class A> struct Statistics {
    A mean, inverse;  // inverse = 1 / sqrt(variance + epsilon)
};

// Not centred: the mean counts as zero.
template <class T> Statistics<wide_t<T>> statistics(const T* x, int64_t n, bool centred, wide_t<T> epsilon) {
    using A = wide_t<T>;
    const A count = static_cast<A>(n), mean = centred ? Reducer<SumOp, T>::run(x, n, 0) / count : 0;
    const A variance = Reducer<DeviationOp, T>::run(x, n, mean) / count;
    return {mean, 1 / std::sqrt(variance + epsilon)};
}

// y = (x - mean) * inverse * scale + bias; bias may be null.
template <class A> void affine(const A* x, A* y, int64_t n, const Statistics<A>& s, const A* scale, const A* bias) {
    const A mean = s.mean, inverse = s.inverse;
    if (bias) {
#pragma GCC ivdep
        for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * inverse * scale[i] + bias[i];
    } else {
#pragma GCC ivdep
        for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * inverse * scale[i];
    }
}
// y = (x - mean) * factor + shift
template <class A> void affine(const A* x, A* y, int64_t n, A mean, A factor, A shift) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * factor + shift;
}

// f(from, to, offset, count) on pieces of x as wide numbers, whose results go to y; y may be x.
template <class T, class F> void map_blocks(const T* x, T* y, int64_t n, F&& f) {
    if constexpr (is_narrow<T>) {
        float block[kBlock];
        for (int64_t i = 0; i < n; i += kBlock) {
            const int64_t count = std::min(kBlock, n - i);
            widen(x + i, block, count);
            f(block, block, i, count);
            narrow(block, y + i, count);
        }
    } else {
        f(x, y, int64_t{0}, n);
    }
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
