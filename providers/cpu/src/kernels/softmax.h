// Softmax and its relatives over one row, and over the columns of a block: what the operators and the losses share.
// A NaN anywhere, or a largest element that is infinite, makes the whole row NaN, as the definition has it.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/vmath.h"

namespace opweave {
namespace OPWEAVE_ISA {

enum class SoftmaxKind { Softmax, LogSoftmax, Hardmax };

// y[i] = exp(x[i] - shift), returns the sum; y may be x, or null.
inline float exp_sum(const float* x, float shift, float* y, int64_t n) {
    vf acc[2] = {};
    int64_t i = 0;
    for (; i + 2 * kLanes <= n; i += 2 * kLanes)
        for (int u = 0; u < 2; ++u) {
            const vf e = vexp_negative(load(x + i + u * kLanes) - shift);
            acc[u] += e;
            if (y) store(y + i + u * kLanes, e);
        }
    float rest[kLanes], total = 0;
    for (; i < n; i += kLanes) {
        const int left = static_cast<int>(std::min<int64_t>(kLanes, n - i));
        const vf e = vexp_negative(load_part(x + i, left) - shift);
        if (y) store_part(y + i, e, left);
        store(rest, e);
        for (int k = 0; k < left; ++k) total += rest[k];
    }
    return total + sum(acc[0] + acc[1]);
}
inline double exp_sum(const double* x, double shift, double* y, int64_t n) {
    double total = 0;
    for (int64_t i = 0; i < n; ++i) {
        const double e = std::exp(x[i] - shift);
        total += e;
        if (y) y[i] = e;
    }
    return total;
}

// The largest element that is not NaN; minus infinity when there is none.
template <class A> A row_max(const A* x, int64_t n) {
    constexpr int kWays = 4 * kLanes;
    A best[kWays], most = -std::numeric_limits<A>::infinity();
    std::fill(best, best + kWays, most);
    int64_t i = 0;
    for (; i + kWays <= n; i += kWays)
        for (int k = 0; k < kWays; ++k) best[k] = x[i + k] > best[k] ? x[i + k] : best[k];
    for (int half = kWays / 2; half > 0; half /= 2)
        for (int k = 0; k < half; ++k) best[k] = best[k + half] > best[k] ? best[k + half] : best[k];
    for (; i < n; ++i) most = x[i] > most ? x[i] : most;
    return best[0] > most ? best[0] : most;
}

// One at the first largest element (the first NaN is larger than all), zeros elsewhere. y may be x.
template <class A> void hardmax_strided(const A* x, A* y, int64_t n, int64_t stride) {
    int64_t at = 0;
    for (int64_t i = 1; i < n && x[at * stride] == x[at * stride]; ++i)
        if (x[i * stride] > x[at * stride] || x[i * stride] != x[i * stride]) at = i;
    for (int64_t i = 0; i < n; ++i) y[i * stride] = i == at ? 1 : 0;
}

// y may be x.
template <class A> void softmax_row(SoftmaxKind kind, const A* x, A* y, int64_t n) {
    if (kind == SoftmaxKind::Hardmax) return hardmax_strided(x, y, n, 1);
    const A most = row_max(x, n);
    const bool log = kind == SoftmaxKind::LogSoftmax;
    const A total = exp_sum(x, most, log ? nullptr : y, n);
    const A scale = 1 / total, shift = log ? std::log(total) : 0;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = log ? (x[i] - most) - shift : y[i] * scale;
}

constexpr int64_t kSoftmaxColumns = 256;

inline void exp_add(const float* x, const float* shift, float* y, float* total, int64_t n) {
    for (int64_t c = 0; c < n; c += kLanes) {
        const int left = static_cast<int>(std::min<int64_t>(kLanes, n - c));
        const vf e = vexp_negative(load_part(x + c, left) - load(shift + c));
        store(total + c, load(total + c) + e);
        if (y) store_part(y + c, e, left);
    }
}
inline void exp_add(const double* x, const double* shift, double* y, double* total, int64_t n) {
    for (int64_t c = 0; c < n; ++c) {
        const double e = std::exp(x[c] - shift[c]);
        total[c] += e;
        if (y) y[c] = e;
    }
}

// Down `width` columns (at most kSoftmaxColumns) of `n` rows, `ld` apart; y may be x.
template <class A> void softmax_columns(SoftmaxKind kind, const A* x, A* y, int64_t n, int64_t ld, int64_t width) {
    if (kind == SoftmaxKind::Hardmax) {
        for (int64_t c = 0; c < width; ++c) hardmax_strided(x + c, y + c, n, ld);
        return;
    }
    A most[kSoftmaxColumns], total[kSoftmaxColumns] = {};
    std::fill(most, most + kSoftmaxColumns, -std::numeric_limits<A>::infinity());
    const bool log = kind == SoftmaxKind::LogSoftmax;
    for (int64_t i = 0; i < n; ++i)
        for (int64_t c = 0; c < width; ++c) most[c] = x[i * ld + c] > most[c] ? x[i * ld + c] : most[c];
    for (int64_t i = 0; i < n; ++i) exp_add(x + i * ld, most, log ? nullptr : y + i * ld, total, width);
    for (int64_t c = 0; c < width; ++c) total[c] = log ? std::log(total[c]) : 1 / total[c];
    for (int64_t i = 0; i < n; ++i) {
        const A* from = (log ? x : y) + i * ld;
        A* to = y + i * ld;
#pragma GCC ivdep
        for (int64_t c = 0; c < width; ++c) to[c] = log ? (from[c] - most[c]) - total[c] : from[c] * total[c];
    }
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
