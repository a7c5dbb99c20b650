// The depthwise form of conv.h. No operator is registered here.
#include "kernels/conv.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {
constexpr int64_t kBufferFloats = 16 * 1024;  // what a band of input rows may take
constexpr int64_t kMostTaps = 64;             // along a row

// One output row: V vectors at a time. rows[j] is the buffer row under tap row j.
template <int V> void taps(const float* const* rows, int64_t row_count, const float* const* weights, const int64_t* offset,
                           int64_t kernel, int64_t x, float* to, int last) {
    vf acc[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) acc[v] = vf{};
    for (int64_t j = 0; j < row_count; ++j) {
        const float* row = rows[j] + x;
        for (int64_t k = 0; k < kernel; ++k) {
            const vf weight = splat(weights[j][k]);
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v) acc[v] += weight * load(row + offset[k] + v * kLanes);
        }
    }
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
        if (v < V - 1 || last == kLanes) store(to + v * kLanes, acc[v]);
        else store_part(to + v * kLanes, acc[v], last);
    }
}

}  // namespace

bool Depthwise::applies(const ConvLayout& l) {
    const Axis &h = l.window.axis[1], &w = l.window.axis[2];
    if (l.ic != 1 || l.window.axis[0].in != 1 || !l.window.axis[0].trivial() || l.out.count() == 0) return false;
    if (w.kernel > kMostTaps || h.kernel > kMostTaps || w.stride > 64) return false;
    const double row = static_cast<double>(w.stride) * static_cast<double>(w.out + kLanes + w.extent() / w.stride + 1);
    return row * static_cast<double>(h.extent()) < static_cast<double>(kBufferFloats) * 16;
}

Depthwise::Depthwise(const ConvLayout& layout) : layout_(layout) {
    const Axis &h = layout.window.axis[1], &w = layout.window.axis[2];
    phase_ = round_up(w.out, kLanes) + (w.extent() - 1) / w.stride + 1;
    row_ = round_up(phase_ * w.stride, kLanes);
    for (int64_t k = 0; k < w.kernel; ++k) offset_[k] = k * w.dilation % w.stride * phase_ + k * w.dilation / w.stride;
    const int64_t rows = std::max<int64_t>(1, kBufferFloats / row_);
    band_ = std::min(h.out, std::max<int64_t>(1, (rows - h.extent()) / h.stride + 1));
}

// Input rows [first, end) to the buffer: element (phase, i) is the padded row's element i * stride + phase.
template <class T> void Depthwise::load_rows(const T* plane, int64_t first, int64_t end, float* buffer) const {
    const Axis& w = layout_.window.axis[2];
    for (int64_t y = first; y < end; ++y, buffer += row_)
        for (int64_t p = 0; p < w.stride; ++p) {
            float* to = buffer + p * phase_;
            const int64_t begin = std::min(phase_, p < w.pad ? ceil_div(w.pad - p, w.stride) : 0);
            const int64_t x = begin * w.stride + p - w.pad;  // of the input
            const int64_t count = x >= w.in ? 0 : std::min(phase_ - begin, (w.in - 1 - x) / w.stride + 1);
            std::fill(to, to + begin, 0.f);
            copy_strided(plane + y * w.in + x, w.stride, to + begin, count);
            std::fill(to + begin + count, to + phase_, 0.f);
        }
}

// Output rows [row0, row1); the buffer begins with input row buffer_row.
void Depthwise::band(const float* buffer, int64_t buffer_row, const float* weights, int64_t row0, int64_t row1, float* y) const {
    const Axis &h = layout_.window.axis[1], &w = layout_.window.axis[2];
    const float *rows[kMostTaps], *row_weights[kMostTaps];
    for (int64_t oy = row0; oy < row1; ++oy, y += w.out) {
        int64_t count = 0;
        for (int64_t k = h.first_tap(oy); k < h.end_tap(oy); ++k, ++count) {
            rows[count] = buffer + (h.start(oy) + k * h.dilation - buffer_row) * row_;
            row_weights[count] = weights + k * w.kernel;
        }
        for (int64_t x = 0; x < w.out; x += 4 * kLanes) {
            const int64_t left = w.out - x;
            const int vectors = static_cast<int>(std::min<int64_t>(4, (left + kLanes - 1) / kLanes));
            const int last = static_cast<int>(std::min<int64_t>(kLanes, left - (vectors - 1) * kLanes));
            const auto run = vectors == 4 ? taps<4> : vectors == 3 ? taps<3> : vectors == 2 ? taps<2> : taps<1>;
            run(rows, count, row_weights, offset_, w.kernel, x, y + x, last);
        }
    }
}

template <class T>
void Depthwise::run(const T* x, const float* weights, float* y, const Epilogue& e, int threads) const {
    const ConvLayout& l = layout_;
    const Axis &h = l.window.axis[1], &w = l.window.axis[2];
    const int64_t bands = (h.out + band_ - 1) / band_, plane = h.out * w.out;
    parallel_ranges(threads, l.batch * l.groups * bands, 1 + 20000 / (band_ * w.out * l.oc * l.window.taps()), [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
            const int64_t image = task / bands, row0 = task % bands * band_, row1 = std::min(h.out, row0 + band_);
            const int64_t first = std::max<int64_t>(0, h.start(row0)), last = std::min(h.in, h.start(row1 - 1) + h.extent());
            float* buffer = static_cast<float*>(scratch(1, static_cast<size_t>(std::max<int64_t>(0, last - first) * row_ + 5 * kLanes) * 4));
            load_rows(x + image * h.in * w.in, first, last, buffer);
            for (int64_t o = 0; o < l.oc; ++o) {
                const int64_t channel = image % l.groups * l.oc + o, out = image * l.oc + o;
                float* to = y + out * plane + row0 * w.out;
                band(buffer, first, weights + channel * l.window.taps(), row0, row1, to);
                Epilogue part = e;
                if (e.row_bias) part.row_bias += channel;
                if (e.residual) part.residual += out * plane + row0 * w.out;
                if (!e.trivial()) apply_epilogue(part, 1, (row1 - row0) * w.out, to, plane);
            }
        }
    });
}
template void Depthwise::run(const float*, const float*, float*, const Epilogue&, int) const;
template void Depthwise::run(const f16*, const float*, float*, const Epilogue&, int) const;
template void Depthwise::run(const bf16*, const float*, float*, const Epilogue&, int) const;

void register_conv_depthwise(Registry&) {}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
