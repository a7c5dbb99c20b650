// Windows that slide over one block of channels: a block in lanes, several neighbouring outputs in registers. What is done
// with the taps (depthwise convolution, pooling) is a rule:
//   Tap tap(const float* weights)       what a tap brings along
//   vf begin()                          before the first tap
//   vf join(vf sum, Tap, vf x)
// and a finish(vf sum, int64_t output, int offset), which stores.
#pragma once

#include "kernels/blocked.h"

namespace opweave {
namespace OPWEAVE_ISA {

// The taps under a run of outputs of one row, as pointers and distances in floats.
struct BlockedTaps {
    const float* x;        // under the first tap of the first output
    const float* weights;  // of that tap
    int64_t rows, columns; // taps
    int64_t row_step, column_step, output_step;  // in x
    int64_t weight_step;   // from row to row
};

// P outputs. K: columns where known, else 0; S: output_step / 16 where known (column_step is 16 then).
template <int P, int K, int S, class Rule, class Finish>
inline void window_outputs(const BlockedTaps& t, int64_t output, const Rule& rule, const Finish& finish) {
    vf sum[P];
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) sum[p] = rule.begin();
    const int64_t columns = K ? K : t.columns, column_step = S ? kBlockLanes : t.column_step, output_step = S ? S * kBlockLanes : t.output_step;
    const float* row = t.x + output * output_step;
    const float* weights = t.weights;
    for (int64_t ky = 0; ky < t.rows; ++ky, row += t.row_step, weights += t.weight_step) {
#pragma GCC unroll 5
        for (int64_t kx = 0; kx < columns; ++kx) {
            const auto tap = rule.tap(weights + kx * kBlockLanes);
#pragma GCC unroll 8
            for (int p = 0; p < P; ++p) sum[p] = rule.join(sum[p], tap, load(row + kx * column_step + p * output_step));
        }
    }
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) finish(sum[p], output + p);
}

// Sums held at once: with the inputs that neighbours share they fill the registers.
constexpr int kWindowOutputs = kLanes == 16 ? 8 : 4;

template <int K, int S, class Rule, class Finish>
void window_run(const BlockedTaps& t, int64_t count, const Rule& rule, const Finish& finish) {
    int64_t o = 0;
    for (; o + kWindowOutputs <= count; o += kWindowOutputs) window_outputs<kWindowOutputs, K, S>(t, o, rule, finish);
    switch (count - o) {
        case 1: return window_outputs<1, K, S>(t, o, rule, finish);
        case 2: return window_outputs<2, K, S>(t, o, rule, finish);
        case 3: return window_outputs<3, K, S>(t, o, rule, finish);
        case 4: return window_outputs<4, K, S>(t, o, rule, finish);
        case 5: return window_outputs<5, K, S>(t, o, rule, finish);
        case 6: return window_outputs<6, K, S>(t, o, rule, finish);
        case 7: return window_outputs<7, K, S>(t, o, rule, finish);
        default: return;
    }
}

// The geometry of a window over blocks, spatial axes right-aligned as in window.h; the leading one is trivial.
class BlockedRows {
  public:
    explicit BlockedRows(const Window& w) : h_(w.axis[1]), w_(w.axis[2]) {
        first_ = std::min(w_.out, std::max<int64_t>(0, ceil_div(w_.pad, w_.stride)));
        const int64_t end = floor_div(w_.in - w_.extent() + w_.pad, w_.stride) + 1;
        end_ = std::max(first_, std::min(w_.out, end));
        dense_ = w_.dilation == 1;
    }
    int64_t count() const { return h_.out; }
    int64_t width() const { return w_.out; }

    // Row `oy` of the output: emit(taps, first output, count) for runs of outputs that see the same taps.
    template <class Emit> void each_run(const float* plane, const float* weights, int64_t oy, const Emit& emit) const {
        const int64_t ky = h_.first_tap(oy), rows = h_.end_tap(oy) - ky;
        const float* row = plane + (h_.start(oy) + ky * h_.dilation) * w_.in * kBlockLanes;
        const float* row_weights = weights + ky * w_.kernel * kBlockLanes;
        auto run = [&](int64_t ox, int64_t n, int64_t kx, int64_t columns) {
            emit(BlockedTaps{row + (w_.start(ox) + kx * w_.dilation) * kBlockLanes, row_weights + kx * kBlockLanes, rows, columns,
                             h_.dilation * w_.in * kBlockLanes, w_.dilation * kBlockLanes, w_.stride * kBlockLanes, w_.kernel * kBlockLanes}, ox, n);
        };
        for (int64_t ox = 0; ox < first_; ++ox) run(ox, 1, w_.first_tap(ox), w_.end_tap(ox) - w_.first_tap(ox));
        if (end_ > first_) run(first_, end_ - first_, 0, w_.kernel);
        for (int64_t ox = end_; ox < w_.out; ++ox) run(ox, 1, w_.first_tap(ox), w_.end_tap(ox) - w_.first_tap(ox));
    }
    // `taps` with the loop over the columns of common windows unrolled.
    template <class Rule, class Finish> void compute(const BlockedTaps& t, int64_t n, const Rule& rule, const Finish& finish) const {
        const int64_t key = dense_ && t.columns == w_.kernel && w_.stride <= 2 ? w_.kernel * 10 + w_.stride : 0;
        switch (key) {
            case 11: return window_run<1, 1>(t, n, rule, finish);
            case 21: return window_run<2, 1>(t, n, rule, finish);
            case 22: return window_run<2, 2>(t, n, rule, finish);
            case 31: return window_run<3, 1>(t, n, rule, finish);
            case 32: return window_run<3, 2>(t, n, rule, finish);
            case 51: return window_run<5, 1>(t, n, rule, finish);
            case 52: return window_run<5, 2>(t, n, rule, finish);
            default: return window_run<0, 0>(t, n, rule, finish);
        }
    }

  private:
    Axis h_, w_;
    int64_t first_, end_;  // outputs of a row whose window lies inside
    bool dense_;
};

}  // namespace OPWEAVE_ISA
}  // namespace opweave
