// The depthwise form of conv.h. No operator is registered here.
#include "kernels/conv.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

constexpr int64_t kBufferFloats = 16 * 1024;  // what a band of input rows may take, where one output row allows it
constexpr int64_t kMostTaps = 1024;
constexpr int64_t kPiece = 2048;

// to[i] = sum over t of weights[t] * from[offset[t] + i] for V vectors. K: the number of taps where known, else 0.
template <int V, int K> void sum_taps(const float* from, const float* weights, const int64_t* offset, int64_t taps, float* to) {
    vf acc[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) acc[v] = vf{};
    const int64_t count = K ? K : taps;
#pragma GCC unroll 9
    for (int64_t t = 0; t < count; ++t) {
        const vf weight = splat(weights[t]);
        const float* at = from + offset[t];
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) acc[v] += weight * load(at + v * kLanes);
    }
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) store(to + v * kLanes, acc[v]);
}
template <int K> void sum_all(const float* from, const float* weights, const int64_t* offset, int64_t taps, int64_t n, float* to) {
    int64_t i = 0;
    for (; i + 4 * kLanes <= n; i += 4 * kLanes) sum_taps<4, K>(from + i, weights, offset, taps, to + i);
    const int left = static_cast<int>((n - i + kLanes - 1) / kLanes);
    if (left == 1) sum_taps<1, K>(from + i, weights, offset, taps, to + i);
    if (left == 2) sum_taps<2, K>(from + i, weights, offset, taps, to + i);
    if (left == 3) sum_taps<3, K>(from + i, weights, offset, taps, to + i);
    if (left == 4) sum_taps<4, K>(from + i, weights, offset, taps, to + i);
}

}  // namespace

bool Depthwise::applies(const ConvLayout& l) {
    const Axis &h = l.window.axis[1], &w = l.window.axis[2];
    if (l.ic != 1 || l.window.axis[0].in != 1 || !l.window.axis[0].trivial() || l.out.count() == 0 || l.window.taps() > kMostTaps) return false;
    const double rows = static_cast<double>(std::min(h.stride, h.extent())) * static_cast<double>(1 + (h.extent() - 1) / h.stride);
    const double row = static_cast<double>(std::min(w.stride, w.extent())) * static_cast<double>(w.out + (w.extent() - 1) / w.stride);
    return rows * row < static_cast<double>(kBufferFloats) * 16;
}

Depthwise::Depthwise(const ConvLayout& layout) : layout_(layout) {
    const Axis &h = layout.window.axis[1], &w = layout.window.axis[2];
    pitch_ = w.out + (w.extent() - 1) / w.stride;
    row_phases_ = std::min(h.stride, h.extent());
    column_phases_ = std::min(w.stride, w.extent());
    const int64_t more = (h.extent() - 1) / h.stride, fit = kBufferFloats / (pitch_ * row_phases_ * column_phases_);
    band_ = std::min(h.out, std::max<int64_t>(1, fit - more));
    buffer_rows_ = band_ + more;
    buffer_ = round_up(row_phases_ * column_phases_ * buffer_rows_ * pitch_ + 4 * kLanes, kLanes);
    sums_ = round_up(band_ * pitch_ + 4 * kLanes, kLanes);
    together_ = std::max<int64_t>(1, std::min<int64_t>(16, kBufferFloats / buffer_));
    for (int64_t phase = 0; phase < column_phases_; ++phase) {
        const int64_t begin = phase < w.pad ? std::min(pitch_, ceil_div(w.pad - phase, w.stride)) : 0;
        const int64_t x = begin * w.stride + phase - w.pad;
        parts_.push_back({begin, x, x >= w.in ? 0 : std::min(pitch_ - begin, (w.in - 1 - x) / w.stride + 1)});
    }
    for (int64_t ky = 0; ky < h.kernel; ++ky)
        for (int64_t kx = 0; kx < w.kernel; ++kx) {
            const int64_t y = ky * h.dilation, x = kx * w.dilation, phase = y % h.stride * column_phases_ + x % w.stride;
            offset_.push_back((phase * buffer_rows_ + y / h.stride) * pitch_ + x / w.stride);
        }
}

template <class T> void Depthwise::load_row(const T* row, int64_t phase, float* to) const {
    const RowPart& part = parts_[static_cast<size_t>(phase)];
    fill_run(to, 0.f, part.begin);
    copy_strided(row + part.x, layout_.window.axis[2].stride, to + part.begin, part.count);
    fill_run(to + part.begin + part.count, 0.f, pitch_ - part.begin - part.count);
}

// What the output rows [row0, row0 + rows) read.
template <class T> void Depthwise::load_band(const T* plane, int64_t row0, int64_t rows, float* buffer) const {
    const Axis &h = layout_.window.axis[1], &w = layout_.window.axis[2];
    const int64_t count = rows + buffer_rows_ - band_;
    for (int64_t py = 0; py < row_phases_; ++py)
        for (int64_t j = 0; j < count; ++j)
            for (int64_t px = 0; px < column_phases_; ++px) {
                const int64_t y = h.start(row0 + j) + py;
                float* to = buffer + ((py * column_phases_ + px) * buffer_rows_ + j) * pitch_;
                if (y >= 0 && y < h.in) load_row(plane + y * w.in, px, to);
                else fill_run(to, 0.f, pitch_);
            }
}

// What stands at the pitch of the input, to its place in the output of one channel.
void Depthwise::finish(const float* sums, int64_t out, int64_t row0, float* y, const Epilogue& e) const {
    const Axis &h = layout_.window.axis[1], &w = layout_.window.axis[2];
    const int64_t rows = rows_from(row0), plane = h.out * w.out, at = out * plane + row0 * w.out;
    for (int64_t r = 0; r < rows; ++r) copy_strided(sums + r * pitch_, 1, y + at + r * w.out, w.out);
    if (e.trivial()) return;
    Epilogue part = e;
    if (e.row_bias) part.row_bias += out % (layout_.groups * layout_.oc);
    if (e.residual) part.residual += at;
    apply_epilogue(part, 1, rows * w.out, y + at, plane);
}

// Bands [first, first + count), at most together_, each of one image (batch entry and group).
template <class T>
void Depthwise::some_bands(const T* x, int64_t first, int64_t count, const float* weights, float* y, const Epilogue& e) const {
    const ConvLayout& l = layout_;
    const int64_t taps = l.window.taps(), each = bands();
    float* buffer = static_cast<float*>(scratch(1, static_cast<size_t>(together_ * buffer_) * 4));
    float* sums = static_cast<float*>(scratch(2, static_cast<size_t>(together_ * sums_) * 4));
    for (int64_t i = 0; i < count; ++i) {
        const int64_t image = (first + i) / each, row0 = (first + i) % each * band_;
        load_band(x + image * l.window.in_size(), row0, rows_from(row0), buffer + i * buffer_);
    }
    for (int64_t o = 0; o < l.oc; ++o) {
        for (int64_t i = 0; i < count; ++i) {
            const int64_t image = (first + i) / each, row0 = (first + i) % each * band_;
            const int64_t n = (rows_from(row0) - 1) * pitch_ + l.window.axis[2].out;
            const float* w = weights + (image % l.groups * l.oc + o) * taps;
            if (taps == 9) sum_all<9>(buffer + i * buffer_, w, offset_.data(), taps, n, sums + i * sums_);
            else sum_all<0>(buffer + i * buffer_, w, offset_.data(), taps, n, sums + i * sums_);
        }
        for (int64_t i = 0; i < count; ++i) finish(sums + i * sums_, (first + i) / each * l.oc + o, (first + i) % each * band_, y, e);
    }
}

// One tap: channels are scaled, a piece at a time that the first-level cache holds until its epilogue is done.
void Depthwise::scale(const float* x, const float* weights, float* y, const Epilogue& e, int threads) const {
    const int64_t size = layout_.window.out_size(), channels = layout_.groups * layout_.oc, pieces = ceil_div(size, kPiece);
    parallel_ranges(threads, layout_.batch * channels * pieces, ceil_div(4 * kPiece, size), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const int64_t plane = i / pieces, first = i % pieces * kPiece, n = std::min(kPiece, size - first), at = plane * size + first;
            const float* from = x + plane / layout_.oc * size + first;
            const float weight = weights[plane % channels];
            for (int64_t j = 0; j < n; ++j) y[at + j] = from[j] * weight;
            Epilogue part = e;
            if (e.row_bias) part.row_bias += plane % channels;
            if (e.residual) part.residual += at;
            apply_epilogue(part, 1, n, y + at, size);
        }
    });
}

template <class T> void Depthwise::run(const T* x, const float* weights, float* y, const Epilogue& e, int threads) const {
    const ConvLayout& l = layout_;
    if constexpr (std::is_same_v<T, float>)
        if (l.window.pointwise()) return scale(x, weights, y, e, threads);
    const int64_t work = band_ * l.window.axis[2].out * l.oc * l.window.taps();
    parallel_ranges(threads, l.batch * l.groups * bands(), together_ + 20000 / work, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i += together_) some_bands(x, i, std::min(together_, end - i), weights, y, e);
    });
}
template void Depthwise::run(const float*, const float*, float*, const Epilogue&, int) const;
template void Depthwise::run(const f16*, const float*, float*, const Epilogue&, int) const;
template void Depthwise::run(const bf16*, const float*, float*, const Epilogue&, int) const;

void register_conv_depthwise(Registry&) {}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
