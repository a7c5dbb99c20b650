// Shared by the convolution operators: geometry with its checks, the columns of a window (im2col) made a panel at a time,
// their opposite (adding columns back), and the depthwise form.
#pragma once

#include "kernels/gemm.h"
#include "kernels/narrow.h"
#include "kernels/window.h"

namespace opweave {
namespace OPWEAVE_ISA {

// x [batch, groups * ic, in...] with weights [groups * oc, ic, kernel...] gives y [batch, groups * oc, out...].
struct ConvLayout {
    Window window;
    int64_t batch = 0, groups = 1, ic = 0, oc = 0;
    Shape out;
    int64_t depth() const { return ic * window.taps(); }  // products that one output sums
    double flops() const { return 2.0 * static_cast<double>(out.count()) * static_cast<double>(depth()); }
};

// Checks x and w against each other and the attributes; the kernel's sizes come from w.
ConvLayout conv_layout(WindowAttrs attrs, int64_t groups, const Shape& x, const Shape& w);
// Throws unless `kernel_shape`, where given, equals the spatial part of w; fills it in.
void take_kernel_shape(WindowAttrs& attrs, const Shape& w);
void check_bias(const Tensor& bias, DType dtype, int64_t channels);

inline void copy_floats(const float* from, float* to, int64_t n) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(to + i, load(from + i));
#if defined(__AVX512F__)
    const __mmask16 rest = static_cast<__mmask16>((1u << (n - i)) - 1);
    _mm512_mask_storeu_ps(to + i, rest, _mm512_maskz_loadu_ps(rest, from + i));
#else
    for (; i < n; ++i) to[i] = from[i];
#endif
}
// Few elements, mostly: a call of memset would cost more than the stores.
template <class T> inline void fill_run(T* to, T value, int64_t n) {
    if constexpr (std::is_same_v<T, float>) {
        int64_t i = 0;
        for (; i + kLanes <= n; i += kLanes) store(to + i, splat(value));
#if defined(__AVX512F__)
        _mm512_mask_storeu_ps(to + i, static_cast<__mmask16>((1u << (n - i)) - 1), _mm512_set1_ps(value));
#else
        for (; i < n; ++i) to[i] = value;
#endif
    } else {
        std::fill(to, to + n, value);
    }
}
// Every second element: a pair of vectors at a time, while both lie before the last element.
inline int64_t copy_even(const float* from, float* to, int64_t n) {
    int64_t i = 0;
    vi even;
    for (int j = 0; j < kLanes; ++j) even[j] = 2 * j;
    for (; i + kLanes < n; i += kLanes) store(to + i, __builtin_shuffle(load(from + 2 * i), load(from + 2 * i + kLanes), even));
    return i;
}

// to[i] = from[i * stride] for i in [0, n).
template <class T, class To> inline void copy_strided(const T* from, int64_t stride, To* to, int64_t n) {
    int64_t i = 0;
    if (stride == 1) {
        if constexpr (std::is_same_v<T, float>) copy_floats(from, to, n);
        else if constexpr (std::is_same_v<T, To>) std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
        else widen(from, to, n);
        return;
    }
    if constexpr (std::is_same_v<T, float>)
        if (stride == 2) i = copy_even(from, to, n);
    for (; i < n; ++i) to[i] = widen(from[i * stride]);
}

// Columns of a window over one image: row (channel, kz, ky, kx), column = output position.
template <class T, class To> class Columns {
  public:
    Columns(const Window& w, const T* x, To outside) : w_(w), x_(x), outside_(outside) {
        if (!w.pointwise()) return;
        w_.axis[2].in = w_.axis[2].out = w.in_size();  // one long row
        w_.axis[0] = w_.axis[1] = Axis{};
    }
    // Rows [k0, k1) x columns [n0, n1) (at most kPanel) to `to`, rows `ld` apart.
    void fill(int64_t k0, int64_t k1, int64_t n0, int64_t n1, To* to, int64_t ld) const {
        Run runs[kPanel];
        const int count = cut(n0, n1, runs);
        const Axis &d = w_.axis[0], &h = w_.axis[1], &w = w_.axis[2];
        int64_t kx = k0 % w.kernel, rest = k0 / w.kernel, ky = rest % h.kernel, kz = rest / h.kernel % d.kernel;
        const T* plane = x_ + rest / h.kernel / d.kernel * w_.in_size();
        for (int64_t k = k0; k < k1; ++k, to += ld) {
            To* at = to;
            for (int r = 0; r < count; at += runs[r++].length) copy(plane, runs[r], kz * d.dilation, ky * h.dilation, kx * w.dilation, at);
            if (++kx < w.kernel) continue;
            kx = 0;
            if (++ky < h.kernel) continue;
            ky = 0;
            if (++kz < d.kernel) continue;
            kz = 0;
            plane += w_.in_size();
        }
    }

  private:
    // Output positions in one row: where the window of the first one starts, how many.
    struct Run {
        int64_t z, y, x, length;
    };
    int cut(int64_t n0, int64_t n1, Run* runs) const {
        const Axis &d = w_.axis[0], &h = w_.axis[1], &w = w_.axis[2];
        int64_t x = n0 % w.out, y = n0 / w.out % h.out, z = n0 / w.out / h.out;
        int count = 0;
        for (int64_t n = n0; n < n1;) {
            const int64_t length = std::min(w.out - x, n1 - n);
            runs[count++] = {d.start(z), h.start(y), w.start(x), length};
            n += length;
            x = 0;
            if (++y == h.out) y = 0, ++z;
        }
        return count;
    }
    void copy(const T* plane, const Run& run, int64_t dz, int64_t dy, int64_t dx, To* to) const {
        const Axis& w = w_.axis[2];
        const int64_t z = run.z + dz, y = run.y + dy, x = run.x + dx, n = run.length;
        int64_t first = 0, end = n;
        if (z < 0 || z >= w_.axis[0].in || y < 0 || y >= w_.axis[1].in) {
            first = end = n;
        } else if (x < 0 || x + (n - 1) * w.stride >= w.in) {
            first = x < 0 ? std::min(n, ceil_div(-x, w.stride)) : 0;
            end = x >= w.in ? first : std::max(first, std::min(n, (w.in - 1 - x) / w.stride + 1));
        }
        if (first > 0) fill_run(to, outside_, first);
        if (end > first) copy_strided(plane + (z * w_.axis[1].in + y) * w.in + x + first * w.stride, w.stride, to + first, end - first);
        if (end < n) fill_run(to + end, outside_, n - end);
    }
    Window w_;
    const T* x_;
    To outside_;
};

// Output positions of a window, row by row: rows [row0, row1), in each the positions [x0, x1).
struct Positions {
    int64_t row0, row1, x0, x1;
    int64_t count() const { return (row1 - row0) * (x1 - x0); }
};
// y[input position] += columns[tap][output position], of one channel; taps are `ld` apart.
template <class T> void add_columns(const Window& window, const Positions& at, const T* columns, int64_t ld, T* y) {
    const Axis &d = window.axis[0], &h = window.axis[1], &w = window.axis[2];
    for (int64_t kz = 0; kz < d.kernel; ++kz)
        for (int64_t ky = 0; ky < h.kernel; ++ky)
            for (int64_t kx = 0; kx < w.kernel; ++kx, columns += ld) {
                const int64_t x = kx * w.dilation - w.pad;
                const int64_t first = std::max(at.x0, x < 0 ? ceil_div(-x, w.stride) : 0);
                const int64_t end = x >= w.in ? 0 : std::min(at.x1, (w.in - 1 - x) / w.stride + 1);
                for (int64_t row = at.row0; row < at.row1; ++row) {
                    const int64_t iz = d.start(row / h.out) + kz * d.dilation, iy = h.start(row % h.out) + ky * h.dilation;
                    if (iz < 0 || iz >= d.in || iy < 0 || iy >= h.in || first >= end) continue;
                    const T* from = columns + (row - at.row0) * (at.x1 - at.x0) + first - at.x0;
                    T* to = y + (iz * h.in + iy) * w.in + first * w.stride + x;
                    if (w.stride == 1) for (int64_t i = 0; i < end - first; ++i) to[i] = static_cast<T>(to[i] + from[i]);
                    else for (int64_t i = 0; i < end - first; ++i) to[i * w.stride] = static_cast<T>(to[i * w.stride] + from[i]);
                }
            }
}

// Depthwise: one input channel a group. A band of input rows is copied into a buffer with its pads, apart by the phases of
// the strides; then an output row follows the other at one pitch, for every tap, so that one loop over whole vectors makes
// all rows of the band, whatever the window; what it makes between the rows is dropped.
class Depthwise {
  public:
    static bool applies(const ConvLayout& layout);
    explicit Depthwise(const ConvLayout& layout);
    // y[batch, groups * oc, out...] = epilogue(...); T may be narrow, y is float32. Epilogue: row_bias and residual as for
    // one row a channel of the output.
    template <class T> void run(const T* x, const float* weights, float* y, const Epilogue& epilogue, int threads) const;

  private:
    template <class T> void load_band(const T* plane, int64_t row0, int64_t rows, float* buffer) const;
    template <class T> void load_row(const T* row, int64_t phase, float* to) const;
    template <class T> void some_bands(const T* x, int64_t first, int64_t count, const float* weights, float* y, const Epilogue& epilogue) const;
    void scale(const float* x, const float* weights, float* y, const Epilogue& epilogue, int threads) const;
    void finish(const float* sums, int64_t out, int64_t row0, float* y, const Epilogue& epilogue) const;
    int64_t rows_from(int64_t row0) const { return std::min(band_, layout_.window.axis[1].out - row0); }
    int64_t bands() const { return ceil_div(layout_.window.axis[1].out, band_); }
    ConvLayout layout_;
    int64_t pitch_ = 0, band_ = 1;                // floats of a row; output rows of a band
    int64_t row_phases_ = 1, column_phases_ = 1;  // those that taps use
    int64_t buffer_rows_ = 1;                     // of each phase
    int64_t buffer_ = 0, sums_ = 0;               // floats of a band's input, of its output at the pitch of the input
    int64_t together_ = 1;                        // bands that are loaded, then computed: what is read was not just written
    std::vector<int64_t> offset_;                 // of each tap in the buffer
    // What a phase of the stride sees of an input row: zeros, `count` elements from x, zeros.
    struct RowPart {
        int64_t begin, x, count;
    };
    std::vector<RowPart> parts_;                  // of each column phase
};

}  // namespace OPWEAVE_ISA
}  // namespace opweave
