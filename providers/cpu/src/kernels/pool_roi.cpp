// RoiAlign and MaxRoiPool: regions of a feature map brought to one size.
// https://onnx.ai/onnx/operators/onnx__RoiAlign.html, __MaxRoiPool.html
#include <cmath>

#include "kernels/dtypes.h"
#include "kernels/window.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

constexpr int64_t kMostSamples = 1 << 16;  // along an axis of a bin

struct RoiOptions {
    int64_t height = 1, width = 1, sampling = 0;
    double scale = 1;
    bool half_pixel = true, max = false;
};

void check_maps(const Shape& x, int64_t height, int64_t width) {
    if (x.rank != 4) throw BadOperand("the input " + x.str() + " must be [batch, channels, height, width]");
    check_size("the input", x);
    if (height < 1 || width < 1 || height > kWindowLimit || width > kWindowLimit)
        throw BadOperand("the output size " + std::to_string(height) + " x " + std::to_string(width) + " is out of range");
}
int64_t checked_image(int64_t i, int64_t batch) {
    if (i < 0 || i >= batch) throw BadOperand("a region is of image " + std::to_string(i) + " of a batch of " + std::to_string(batch));
    return i;
}
template <class F> void for_each_region(const Context& context, int64_t regions, int64_t work, F&& f) {
    parallel_ranges(context.threads, regions, 1 + 20000 / (work + 1), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) f(r);
    });
}

// A point between four pixels, with their weights.
template <class U> struct Point {
    int64_t at[4];
    U weight[4];
};

template <class T> class Align final : public Prepared {
  public:
    using U = wide_t<T>;
    Align(const RoiOptions& options, const Shape& x, int64_t regions) : o_(options), x_(x), regions_(regions) {
        algorithm = options.max ? "bilinear, max" : "bilinear, mean";
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        if (x_[2] == 0 || x_[3] == 0) return std::fill(out[0].as<T>(), out[0].as<T>() + out[0].count(), T{});
        for_each_region(context, regions_, x_[1] * o_.height * o_.width, [&](int64_t r) { region(r, in, out); });
    }

  private:
    // One axis of a region: where it begins, the size of a bin, samples in a bin.
    struct Span {
        U start, bin;
        int64_t samples;
        U sample(int64_t bin_index, int64_t i) const {
            return start + static_cast<U>(bin_index) * bin + (static_cast<U>(i) + U(0.5)) * bin / static_cast<U>(samples);
        }
    };
    Span span(T from, T to, int64_t bins) const {
        const U shift = o_.half_pixel ? U(0.5) : U(0), scale = static_cast<U>(o_.scale);
        const U start = widen(from) * scale - shift;
        U size = widen(to) * scale - shift - start;
        if (!o_.half_pixel) size = size > 1 ? size : U(1);
        const U bin = size / static_cast<U>(bins), wanted = std::ceil(bin);
        if (o_.sampling > 0) return {start, bin, o_.sampling};
        if (!(wanted <= static_cast<U>(kMostSamples))) throw BadOperand("a region is too large, or no number");
        return {start, bin, std::max<int64_t>(0, static_cast<int64_t>(wanted))};
    }
    Point<U> point(U y, U x) const {
        const U height = static_cast<U>(x_[2]), width = static_cast<U>(x_[3]);
        if (!(y >= -1 && y <= height && x >= -1 && x <= width)) return {};
        y = std::min(y > 0 ? y : 0, height - 1);
        x = std::min(x > 0 ? x : 0, width - 1);
        const int64_t y0 = static_cast<int64_t>(y), x0 = static_cast<int64_t>(x);
        const int64_t y1 = std::min(y0 + 1, x_[2] - 1), x1 = std::min(x0 + 1, x_[3] - 1);
        const U dy = y - static_cast<U>(y0), dx = x - static_cast<U>(x0);
        return {{y0 * x_[3] + x0, y0 * x_[3] + x1, y1 * x_[3] + x0, y1 * x_[3] + x1},
                {(1 - dy) * (1 - dx), (1 - dy) * dx, dy * (1 - dx), dy * dx}};
    }
    void region(int64_t r, const Tensor* in, const Tensor* out) const {
        const T* roi = in[1].as<T>() + r * 4;
        const Span h = span(roi[1], roi[3], o_.height), w = span(roi[0], roi[2], o_.width);
        if (h.samples * w.samples > kMostSamples * 16) throw BadOperand("a region is too large");
        const int64_t image = checked_image(in[2].as<int64_t>()[r], x_[0]), plane = x_[2] * x_[3], bins = o_.height * o_.width;
        const T* maps = in[0].as<T>() + image * x_[1] * plane;
        T* y = out[0].as<T>() + r * x_[1] * bins;
        std::vector<Point<U>> points;
        for (int64_t b = 0; b < bins; ++b) {
            points.clear();
            for (int64_t i = 0; i < h.samples; ++i)
                for (int64_t j = 0; j < w.samples; ++j) points.push_back(point(h.sample(b / o_.width, i), w.sample(b % o_.width, j)));
            for (int64_t c = 0; c < x_[1]; ++c) y[c * bins + b] = narrow<T>(o_.max ? largest(maps + c * plane, points) : mean(maps + c * plane, points));
        }
    }
    static U mean(const T* map, const std::vector<Point<U>>& points) {
        U sum = 0;
        for (const Point<U>& p : points)
            for (int i = 0; i < 4; ++i) sum += p.weight[i] * widen(map[p.at[i]]);
        return sum / static_cast<U>(std::max<size_t>(points.size(), 1));
    }
    // The largest weighted pixel, as ONNX's reference and ONNX Runtime have it: not the largest of the interpolated values.
    static U largest(const T* map, const std::vector<Point<U>>& points) {
        if (points.empty()) return 0;
        U most = points[0].weight[0] * widen(map[points[0].at[0]]);
        for (const Point<U>& p : points)
            for (int i = 0; i < 4; ++i) most = std::max(most, p.weight[i] * widen(map[p.at[i]]));
        return most;
    }
    RoiOptions o_;
    Shape x_;
    int64_t regions_;
};

class AlignKernel final : public Kernel {
  public:
    explicit AlignKernel(const NodeSpec& s) {
        for (size_t i : {0, 1, 2})
            if (!s.has_input(i)) throw BadOperand("input " + std::to_string(i) + " is missing");
        const std::string mode = s.attrs.text("mode", "avg"), corner = s.attrs.text("coordinate_transformation_mode", "half_pixel");
        if (mode != "avg" && mode != "max") throw BadOperand("mode is '" + mode + "'; it must be avg or max");
        if (corner != "half_pixel" && corner != "output_half_pixel") throw BadOperand("coordinate_transformation_mode is '" + corner + "'; it must be half_pixel or output_half_pixel");
        o_ = {s.attrs.integer("output_height", 1), s.attrs.integer("output_width", 1), s.attrs.integer("sampling_ratio", 0),
              s.attrs.real("spatial_scale", 1), corner == "half_pixel", mode == "max"};
        if (o_.sampling < 0 || o_.sampling > 1024) throw BadOperand("sampling_ratio is " + std::to_string(o_.sampling));
        visit<FloatTypes>(s.inputs[0].dtype, [](auto) { return 0; });
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape &x = in[0].shape(), &rois = in[1].shape(), &images = in[2].shape();
        check_maps(x, o_.height, o_.width);
        if (in[1].dtype() != in[0].dtype() || in[2].dtype() != DType::I64) throw BadOperand("regions must have the input's type, their images int64");
        if (rois.rank != 2 || rois[1] != 4 || images.rank != 1 || images[0] != rois[0])
            throw BadOperand("the regions " + rois.str() + " must be [regions, 4], their images " + images.str() + " [regions]");
        const Shape y{rois[0], x[1], o_.height, o_.width};
        check_size("the output", y);
        out[0] = {in[0].dtype(), y};
        return visit<FloatTypes>(in[0].dtype(), [&](auto type) -> std::unique_ptr<Prepared> {
            return std::make_unique<Align<decltype(type)>>(o_, x, rois[0]);
        });
    }

  private:
    RoiOptions o_;
};

template <class T> class MaxRoi final : public Prepared {
  public:
    using U = wide_t<T>;
    MaxRoi(const RoiOptions& options, const Shape& x, int64_t regions) : o_(options), x_(x), regions_(regions) {}
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        for_each_region(context, regions_, x_[1] * o_.height * o_.width, [&](int64_t r) { region(r, in, out); });
    }

  private:
    // Pixels [begin, end) of bin i along an axis, for a region that spans [from, to] of `size` pixels.
    struct Bins {
        double start, bin;
        int64_t size;
        int64_t clip(double v) const { return static_cast<int64_t>(std::min(std::max(v, 0.0), static_cast<double>(size))); }
        int64_t begin(int64_t i) const { return clip(std::floor(static_cast<double>(i) * bin) + start); }
        int64_t end(int64_t i) const { return clip(std::ceil(static_cast<double>(i + 1) * bin) + start); }
    };
    Bins bins(T from, T to, int64_t count, int64_t size) const {
        const double start = std::round(static_cast<double>(widen(from)) * o_.scale), last = std::round(static_cast<double>(widen(to)) * o_.scale);
        if (!std::isfinite(start) || !std::isfinite(last)) throw BadOperand("the corner of a region is no number");
        return {start, std::max(last - start + 1, 1.0) / static_cast<double>(count), size};
    }
    void region(int64_t r, const Tensor* in, const Tensor* out) const {
        const T* roi = in[1].as<T>() + r * 5;
        const double number = static_cast<double>(widen(roi[0]));
        const int64_t image = checked_image(number >= 0 && number < static_cast<double>(x_[0]) ? static_cast<int64_t>(number) : -1, x_[0]);
        const Bins w = bins(roi[1], roi[3], o_.width, x_[3]), h = bins(roi[2], roi[4], o_.height, x_[2]);
        T* y = out[0].as<T>() + r * x_[1] * o_.height * o_.width;
        for (int64_t c = 0; c < x_[1]; ++c) {
            const T* map = in[0].as<T>() + (image * x_[1] + c) * x_[2] * x_[3];
            for (int64_t i = 0; i < o_.height; ++i)
                for (int64_t j = 0; j < o_.width; ++j) *y++ = largest(map, h.begin(i), h.end(i), w.begin(j), w.end(j));
        }
    }
    T largest(const T* map, int64_t y0, int64_t y1, int64_t x0, int64_t x1) const {
        if (y0 >= y1 || x0 >= x1) return T{};
        U most = widen(map[y0 * x_[3] + x0]);
        for (int64_t y = y0; y < y1; ++y)
            for (int64_t x = x0; x < x1; ++x) most = std::max(most, widen(map[y * x_[3] + x]));
        return narrow<T>(most);
    }
    RoiOptions o_;
    Shape x_;
    int64_t regions_;
};

class MaxRoiKernel final : public Kernel {
  public:
    explicit MaxRoiKernel(const NodeSpec& s) {
        if (!s.has_input(0) || !s.has_input(1)) throw BadOperand("the input or the regions are missing");
        const std::vector<int64_t> size = s.attrs.integers("pooled_shape");
        if (size.size() != 2) throw BadOperand("pooled_shape must hold a height and a width");
        o_.height = size[0];
        o_.width = size[1];
        o_.scale = s.attrs.real("spatial_scale", 1);
        visit<FloatTypes>(s.inputs[0].dtype, [](auto) { return 0; });
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape &x = in[0].shape(), &rois = in[1].shape();
        check_maps(x, o_.height, o_.width);
        if (in[1].dtype() != in[0].dtype()) throw BadOperand("the regions must have the input's type");
        if (rois.rank != 2 || rois[1] != 5) throw BadOperand("the regions " + rois.str() + " must be [regions, 5]");
        const Shape y{rois[0], x[1], o_.height, o_.width};
        check_size("the output", y);
        out[0] = {in[0].dtype(), y};
        return visit<FloatTypes>(in[0].dtype(), [&](auto type) -> std::unique_ptr<Prepared> {
            return std::make_unique<MaxRoi<decltype(type)>>(o_, x, rois[0]);
        });
    }

  private:
    RoiOptions o_;
};

}  // namespace

void register_pool_roi(Registry& r) {
    r.add("RoiAlign", [](const NodeSpec& s) { return std::make_unique<AlignKernel>(s); });
    r.add("MaxRoiPool", [](const NodeSpec& s) { return std::make_unique<MaxRoiKernel>(s); });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
