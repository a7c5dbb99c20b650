// What normalisations share: statistics of a contiguous run and the affine map after them. Where y is x, and through
// `ivdep`, loops stay vectorised: element i of the result depends on element i alone.
#pragma once

#include <cmath>

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

}  // namespace OPWEAVE_ISA
}  // namespace opweave
