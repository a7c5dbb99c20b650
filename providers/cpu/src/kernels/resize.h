// Resize, what does not depend on the data: sizes, and for every resized axis the elements of the input that an element
// of the output is made of. https://onnx.ai/onnx/operators/onnx__Resize.html
#pragma once

#include <cmath>

#include "kernels/dtypes.h"
#include "kernels/indices.h"

namespace opweave {
namespace OPWEAVE_ISA {

// Output position o reads the inputs index[o * count + k] with the weights weight[o * count + k]; outside[o]: it takes the
// extrapolation value.
struct Taps {
    int axis = 0;
    int count = 1;
    std::vector<int64_t> index;
    std::vector<double> weight;
    std::vector<char> outside;
};

struct ResizeAttrs {
    std::string mode, coordinates, nearest, policy;
    double cubic_a, extrapolation;
    bool exclude_outside;
    std::vector<int64_t> axes;
    bool has_axes, has_roi, has_scales, has_sizes;

    explicit ResizeAttrs(const NodeSpec& s)
        : mode(s.attrs.text("mode", "nearest")),
          coordinates(s.attrs.text("coordinate_transformation_mode", "half_pixel")),
          nearest(s.attrs.text("nearest_mode", "round_prefer_floor")),
          policy(s.attrs.text("keep_aspect_ratio_policy", "stretch")),
          cubic_a(s.attrs.real("cubic_coeff_a", -0.75)),
          extrapolation(s.attrs.real("extrapolation_value", 0.0)),
          exclude_outside(s.attrs.integer("exclude_outside", 0) != 0),
          axes(s.attrs.integers("axes")),
          has_axes(s.attrs.has("axes")),
          has_roi(s.has_input(1)),
          has_scales(s.has_input(2)),
          has_sizes(s.has_input(3)) {
        if (s.attrs.integer("antialias", 0) != 0) throw Unsupported("antialias");
        expect_one_of("mode", mode, {"nearest", "linear", "cubic"});
        expect_one_of("nearest_mode", nearest, {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"});
        expect_one_of("keep_aspect_ratio_policy", policy, {"stretch", "not_larger", "not_smaller"});
        expect_one_of("coordinate_transformation_mode", coordinates,
                      {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"});
    }
    bool crops() const { return coordinates == "tf_crop_and_resize"; }

  private:
    static void expect_one_of(const char* name, const std::string& value, std::initializer_list<const char*> known) {
        for (const char* k : known)
            if (value == k) return;
        throw BadOperand(std::string(name) + " is unknown: " + value);
    }
};

// Scales, sizes and the region of every dimension.
class ResizePlan {
  public:
    ResizePlan(const ResizeAttrs& attrs, const Tensor* in) : attrs_(attrs), from_(in[0].shape()), to(from_) {
        const int rank = from_.rank;
        for (int i = 0; i < rank; ++i) scale_[i] = 1, end_[i] = 1;
        AxisSet named;
        for (int64_t a : attrs.axes) {
            named.add(a, rank);
            axes_.push_back(checked_axis(a, rank));
        }
        for (int i = 0; i < rank && !attrs.has_axes; ++i) axes_.push_back(i);
        if (attrs.has_sizes && in[3].count() > 0) take_sizes(in[3]);
        else if (attrs.has_scales) take_scales(in[2]);
        else throw BadOperand("neither scales nor sizes are given");
        if (attrs.crops()) take_region(attrs.has_roi ? &in[1] : nullptr);
        if (to.count() > 0 && from_.count() == 0) throw BadOperand("nothing can be made of an input of shape " + from_.str());
    }
    // Of the axes that are not left as they are; empty where the output is.
    std::vector<Taps> taps() const {
        std::vector<Taps> all;
        if (to.count() == 0) return all;
        for (int axis = 0; axis < from_.rank; ++axis) {
            bool whole = !attrs_.crops() || (start_[axis] == 0 && end_[axis] == 1);
            if (from_[axis] == to[axis] && std::abs(scale_[axis] - 1) <= 1e-9 && whole) continue;
            all.push_back(taps(axis));
        }
        return all;
    }

  private:
    const ResizeAttrs& attrs_;
    Shape from_;
    std::vector<int> axes_;
    double scale_[kMaxRank] = {}, start_[kMaxRank] = {}, end_[kMaxRank] = {};

    void expect_entries(const Tensor& t, const char* name, size_t times = 1) const {
        if (t.shape().rank != 1 || t.count() != static_cast<int64_t>(axes_.size() * times))
            throw BadOperand(std::string(name) + " of shape " + t.shape().str() + " do not fit " + std::to_string(axes_.size()) + " axes");
    }
    static int64_t checked_size(double size) {
        if (!(size >= 0 && size <= 2147483647.0)) throw BadOperand("an output dimension is negative or too large");
        return static_cast<int64_t>(size);
    }
    void take_sizes(const Tensor& t) {
        expect_dtype(t, DType::I64, "sizes");
        expect_entries(t, "sizes");
        double least = HUGE_VAL, most = 0;
        for (size_t i = 0; i < axes_.size(); ++i) {
            const int a = axes_[i];
            to[a] = checked_size(static_cast<double>(t.as<int64_t>()[i]));
            scale_[a] = from_[a] ? static_cast<double>(to[a]) / static_cast<double>(from_[a]) : 1;
            least = std::min(least, scale_[a]);
            most = std::max(most, scale_[a]);
        }
        if (attrs_.policy == "stretch") return;
        for (int a : axes_) {
            scale_[a] = attrs_.policy == "not_larger" ? least : most;
            to[a] = checked_size(std::floor(scale_[a] * static_cast<double>(from_[a]) + 0.5));
        }
    }
    void take_scales(const Tensor& t) {
        expect_dtype(t, DType::F32, "scales");
        expect_entries(t, "scales");
        for (size_t i = 0; i < axes_.size(); ++i) {
            const float scale = t.as<float>()[i];
            if (!(scale > 0) || std::isinf(scale)) throw BadOperand("scales must be positive and finite");
            scale_[axes_[i]] = scale;
            // In single precision, as shape inference has it.
            to[axes_[i]] = checked_size(std::floor(static_cast<float>(from_[axes_[i]]) * scale));
        }
    }
    void take_region(const Tensor* roi) {
        if (!roi) throw BadOperand("tf_crop_and_resize needs roi");
        expect_entries(*roi, "roi", 2);
        std::vector<double> region(axes_.size() * 2);
        read_reals(roi->dtype(), roi->data, 0, region.data(), static_cast<int64_t>(region.size()));
        for (size_t i = 0; i < axes_.size(); ++i) {
            start_[axes_[i]] = region[i];
            end_[axes_[i]] = region[axes_.size() + i];
        }
    }

    // Where output position o lies in the input.
    double source(int axis, int64_t o) const {
        const double x = static_cast<double>(o), in = static_cast<double>(from_[axis]), scale = scale_[axis], out = scale * in;
        const std::string& mode = attrs_.coordinates;
        if (mode == "align_corners") return out == 1 ? 0 : x * (in - 1) / (out - 1);
        if (mode == "asymmetric") return x / scale;
        if (mode == "tf_crop_and_resize") {
            const double width = (end_[axis] - start_[axis]) * (in - 1);
            return start_[axis] * (in - 1) + (out == 1 ? width / 2 : x * width / (out - 1));
        }
        if (mode == "pytorch_half_pixel" && out == 1) return -0.5;
        double shift = mode == "half_pixel_symmetric" ? in / 2 * (1 - static_cast<double>(to[axis]) / out) : 0;
        return shift + (x + 0.5) / scale - 0.5;
    }

    int64_t nearest(double x) const {
        double at = attrs_.nearest == "floor"  ? std::floor(x)
                    : attrs_.nearest == "ceil" ? std::ceil(x)
                    : attrs_.nearest == "round_prefer_floor" ? std::ceil(x - 0.5) : std::floor(x + 0.5);
        return static_cast<int64_t>(at);
    }

    void weights(double ratio, double* w) const {
        if (attrs_.mode == "linear") {
            w[0] = 1 - ratio;
            w[1] = ratio;
            return;
        }
        const double a = attrs_.cubic_a;
        auto near = [a](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
        auto far = [a](double d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
        w[0] = far(ratio + 1);
        w[1] = near(ratio);
        w[2] = near(1 - ratio);
        w[3] = far(2 - ratio);
    }

    Taps taps(int axis) const {
        Taps t;
        t.axis = axis;
        t.count = attrs_.mode == "nearest" ? 1 : attrs_.mode == "linear" ? 2 : 4;
        const int64_t length = from_[axis];
        const size_t n = static_cast<size_t>(t.count);
        t.index.resize(static_cast<size_t>(to[axis]) * n);
        t.weight.assign(t.index.size(), 1);
        t.outside.resize(static_cast<size_t>(to[axis]));
        for (size_t o = 0; o < t.outside.size(); ++o) {
            double x = source(axis, static_cast<int64_t>(o));
            t.outside[o] = attrs_.crops() && !(x >= 0 && x <= static_cast<double>(length - 1));
            // Farther out nothing changes, and not-a-number has to go somewhere.
            x = x >= -8 ? std::min(x, static_cast<double>(length + 8)) : -8;
            int64_t first = nearest(x);
            if (n > 1) {
                first = static_cast<int64_t>(std::floor(x)) - static_cast<int64_t>(n / 2 - 1);
                weights(x - std::floor(x), &t.weight[o * n]);
                if (attrs_.exclude_outside) exclude(first, length, n, &t.weight[o * n]);
            }
            for (size_t k = 0; k < n; ++k)
                t.index[o * n + k] = std::clamp<int64_t>(first + static_cast<int64_t>(k), 0, length - 1);
        }
        return t;
    }
    static void exclude(int64_t first, int64_t length, size_t n, double* w) {
        double sum = 0;
        for (size_t k = 0; k < n; ++k) {
            const int64_t at = first + static_cast<int64_t>(k);
            if (at < 0 || at >= length) w[k] = 0;
            sum += w[k];
        }
        for (size_t k = 0; k < n && sum != 0; ++k) w[k] /= sum;
    }

  public:
    Shape to;
};

}  // namespace OPWEAVE_ISA
}  // namespace opweave
