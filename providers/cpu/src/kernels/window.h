// Geometry of sliding windows (convolution and pooling over one to three spatial axes): attributes, output sizes, and the
// taps that fall inside the input. Axes are aligned right in arrays of three; missing leading ones have size 1.
// Everything is checked here, so that kernels may multiply without fear of overflow.
#pragma once

#include <algorithm>

#include "core/kernel.h"

namespace opweave {
namespace OPWEAVE_ISA {

inline int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
inline int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }

constexpr int64_t kWindowLimit = int64_t{1} << 31;  // of kernels, strides, dilations, pads, and of spatial sizes times 256
constexpr int64_t kMostElements = int64_t{1} << 48;

// Throws where the product of the sizes, zeros aside, passes kMostElements: then every partial product is safe too.
inline void check_size(const char* what, const Shape& s) {
    double n = 1;
    for (int64_t d : s) n *= static_cast<double>(std::max<int64_t>(d, 1));
    if (n > static_cast<double>(kMostElements)) throw BadOperand(std::string(what) + " " + s.str() + " is too large");
}

struct Axis {
    int64_t in = 1, out = 1, kernel = 1, stride = 1, dilation = 1, pad = 0, pad_end = 0;

    int64_t extent() const { return (kernel - 1) * dilation + 1; }
    int64_t start(int64_t o) const { return o * stride - pad; }
    // Taps [first_tap, end_tap) of the window at output position o read inside the input.
    int64_t first_tap(int64_t o) const { return std::min(kernel, std::max<int64_t>(0, ceil_div(-start(o), dilation))); }
    int64_t end_tap(int64_t o) const {
        return std::max(first_tap(o), std::min(kernel, floor_div(in - 1 - start(o), dilation) + 1));
    }
    bool trivial() const { return kernel == 1 && stride == 1 && pad == 0 && pad_end == 0; }
};

struct Window {
    int spatial = 0;
    Axis axis[3];

    int64_t taps() const { return axis[0].kernel * axis[1].kernel * axis[2].kernel; }
    int64_t in_size() const { return axis[0].in * axis[1].in * axis[2].in; }
    int64_t out_size() const { return axis[0].out * axis[1].out * axis[2].out; }
    bool pointwise() const { return axis[0].trivial() && axis[1].trivial() && axis[2].trivial(); }
    Shape out_shape(int64_t batch, int64_t channels) const {
        Shape s{batch, channels};
        for (int i = 3 - spatial; i < 3; ++i) s.push_back(axis[i].out);
        check_size("the output", s);
        return s;
    }
};

enum class AutoPad { NotSet, SameUpper, SameLower, Valid };

struct WindowAttrs {
    std::vector<int64_t> kernel, strides, dilations, pads;
    AutoPad auto_pad = AutoPad::NotSet;
    bool ceil = false;

    WindowAttrs() = default;
    explicit WindowAttrs(const Attrs& a)
        : kernel(a.integers("kernel_shape")), strides(a.integers("strides")), dilations(a.integers("dilations")),
          pads(a.integers("pads")), auto_pad(parse_auto_pad(a.text("auto_pad", "NOTSET"))), ceil(a.integer("ceil_mode", 0) != 0) {}

    static AutoPad parse_auto_pad(const std::string& s) {
        if (s == "NOTSET" || s.empty()) return AutoPad::NotSet;
        if (s == "VALID") return AutoPad::Valid;
        if (s == "SAME_UPPER") return AutoPad::SameUpper;
        if (s == "SAME_LOWER") return AutoPad::SameLower;
        throw BadOperand("auto_pad is '" + s + "'; it must be NOTSET, VALID, SAME_UPPER or SAME_LOWER");
    }
};

// The value of a per-axis attribute, or `otherwise` where the attribute is absent; throws outside [least, kWindowLimit].
inline int64_t axis_value(const std::vector<int64_t>& list, const char* name, int spatial, int i, int64_t otherwise, int64_t least) {
    if (list.empty()) return otherwise;
    if (list.size() != static_cast<size_t>(spatial))
        throw BadOperand(std::string(name) + " has " + std::to_string(static_cast<int64_t>(list.size())) + " entries for " + std::to_string(spatial) + " spatial axes");
    int64_t v = list[static_cast<size_t>(i)];
    if (v < least || v > kWindowLimit) throw BadOperand(std::string(name) + " holds " + std::to_string(v) + ", which is out of range");
    return v;
}

// The axes of `x` [N, C, spatial...] with the window of the attributes on each; output sizes are left at 1.
inline Window window_axes(const WindowAttrs& a, const Shape& x) {
    if (x.rank < 3 || x.rank > 5) throw BadOperand("the input " + x.str() + " must have 1 to 3 spatial axes after batch and channels");
    check_size("the input", x);
    Window w;
    w.spatial = x.rank - 2;
    Shape taps;
    if (!a.pads.empty() && a.pads.size() != static_cast<size_t>(2 * w.spatial))
        throw BadOperand("pads has " + std::to_string(static_cast<int64_t>(a.pads.size())) + " entries for " + std::to_string(w.spatial) + " spatial axes");
    for (int i = 0; i < w.spatial; ++i) {
        Axis& axis = w.axis[3 - w.spatial + i];
        axis.in = x[2 + i];
        if (axis.in >= kWindowLimit << 8) throw BadOperand("the spatial size " + std::to_string(axis.in) + " is too large");
        axis.kernel = axis_value(a.kernel, "kernel_shape", w.spatial, i, 1, 1);
        taps.push_back(axis.kernel);
        axis.stride = axis_value(a.strides, "strides", w.spatial, i, 1, 1);
        axis.dilation = axis_value(a.dilations, "dilations", w.spatial, i, 1, 1);
        if (a.pads.empty() || a.auto_pad != AutoPad::NotSet) continue;
        axis.pad = a.pads[static_cast<size_t>(i)];
        axis.pad_end = a.pads[static_cast<size_t>(w.spatial + i)];
        if (std::min(axis.pad, axis.pad_end) < 0 || std::max(axis.pad, axis.pad_end) > kWindowLimit)
            throw BadOperand("pads hold " + std::to_string(std::min(axis.pad, axis.pad_end)) + " and " + std::to_string(std::max(axis.pad, axis.pad_end)) + ", out of range");
    }
    check_size("the window", taps);
    return w;
}

inline void place_same(Axis& a, bool upper) {
    a.out = ceil_div(a.in, a.stride);
    int64_t total = std::max<int64_t>(0, (a.out - 1) * a.stride + a.extent() - a.in);
    a.pad = upper ? total / 2 : total - total / 2;
    a.pad_end = total - a.pad;
}

inline void place_explicit(Axis& a, bool ceil) {
    int64_t slack = a.in + a.pad + a.pad_end - a.extent();
    a.out = (ceil ? ceil_div(slack, a.stride) : floor_div(slack, a.stride)) + 1;
    if (ceil && (a.out - 1) * a.stride >= a.in + a.pad) --a.out;  // the last window must start on the image or its head pad
    if (a.out < 0)
        throw BadOperand("a window of " + std::to_string(a.extent()) + " does not fit the padded input of " + std::to_string(a.in + a.pad + a.pad_end));
}

// Output sizes of a forward window (Conv and the pooling operators, ONNX's formulas; ceil_mode only with explicit pads).
inline Window place_window(const WindowAttrs& a, const Shape& x) {
    Window w = window_axes(a, x);
    for (int i = 3 - w.spatial; i < 3; ++i) {
        if (a.auto_pad == AutoPad::SameUpper || a.auto_pad == AutoPad::SameLower)
            place_same(w.axis[i], a.auto_pad == AutoPad::SameUpper);
        else
            place_explicit(w.axis[i], a.ceil && a.auto_pad == AutoPad::NotSet);
    }
    return w;
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
