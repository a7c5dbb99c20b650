// DeformConv over two spatial axes: a convolution whose taps are moved by offsets, read between pixels and scaled by a mask.
// The columns of the window are sampled a panel at a time; the product is that of Conv.
// https://onnx.ai/onnx/operators/onnx__DeformConv.html
#include <cmath>

#include "kernels/conv.h"
#include "kernels/dtypes.h"
#include "kernels/product.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

// One plane of height x width read at (y, x): bilinear, zero outside.
template <class T> wide_t<T> sample(const T* plane, int64_t height, int64_t width, wide_t<T> y, wide_t<T> x) {
    using U = wide_t<T>;
    if (!(y > -1 && x > -1 && y < static_cast<U>(height) && x < static_cast<U>(width))) return 0;
    const U fy = std::floor(y), fx = std::floor(x), dy = y - fy, dx = x - fx;
    const int64_t y0 = static_cast<int64_t>(fy), x0 = static_cast<int64_t>(fx);
    auto at = [&](int64_t r, int64_t c) -> U {
        return r < 0 || c < 0 || r >= height || c >= width ? U{} : widen(plane[r * width + c]);
    };
    return (1 - dy) * ((1 - dx) * at(y0, x0) + dx * at(y0, x0 + 1)) + dy * ((1 - dx) * at(y0 + 1, x0) + dx * at(y0 + 1, x0 + 1));
}

template <class T> class DeformConv final : public Prepared {
  public:
    using U = wide_t<T>;
    DeformConv(const ConvLayout& layout, int64_t offset_groups, bool bias, bool mask)
        : layout_(layout), offset_groups_(offset_groups), bias_(bias), mask_(mask) {
        if (is_narrow<T>) workspace = static_cast<size_t>(layout.out.count()) * sizeof(U);
        flops = layout.flops();
        algorithm = "sampled gemm";
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const ConvLayout& l = layout_;
        if (l.out.count() == 0) return;
        U* y = is_narrow<T> ? static_cast<U*>(context.workspace) : reinterpret_cast<U*>(out[0].data);
        std::vector<U> weights(static_cast<size_t>(in[1].count())), bias(static_cast<size_t>(l.groups * l.oc));
        widen(in[1].as<T>(), weights.data(), in[1].count());
        if (bias_) widen(in[3].as<T>(), bias.data(), l.groups * l.oc);
        for_each_batch(context.threads, l.batch * l.groups, l.flops(), [&](int64_t i, int threads) {
            const int64_t g = i % l.groups;
            product(weights.data() + g * l.oc * l.depth(), bias.data() + g * l.oc, i, in, y + i * l.oc * l.window.out_size(), threads);
        });
        if constexpr (is_narrow<T>) narrow(y, out[0].as<T>(), l.out.count());
    }

  private:
    void product(const U* w, const U* bias, int64_t image, const Tensor* in, U* y, int threads) const {
        const ConvLayout& l = layout_;
        const int64_t n = l.window.out_size(), k = l.depth();
        if constexpr (std::is_same_v<U, float>) {
            Epilogue e;
            e.row_bias = bias;
            gemm_filled(pack_a(w, k, 1, l.oc, k), n, [&](int64_t k0, int64_t k1, int64_t n0, int64_t n1, float* to, int64_t ld) {
                fill(image, in, k0, k1, n0, n1, to, ld);
            }, y, n, e, threads);
        } else {
            U* columns = static_cast<U*>(scratch(1, static_cast<size_t>(k * kPanel) * sizeof(U)));
            for (int64_t n0 = 0; n0 < n; n0 += kPanel) {
                const int64_t width = std::min<int64_t>(kPanel, n - n0);
                fill(image, in, 0, k, n0, n0 + width, columns, kPanel);
                for (int64_t o = 0; o < l.oc; ++o)
                    for (int64_t j = 0; j < width; ++j) {
                        U sum = bias[o];
                        for (int64_t p = 0; p < k; ++p) sum += w[o * k + p] * columns[p * kPanel + j];
                        y[o * n + n0 + j] = sum;
                    }
            }
        }
    }
    // Rows [k0, k1) x columns [n0, n1) of what is sampled for one image (batch entry and group).
    void fill(int64_t image, const Tensor* in, int64_t k0, int64_t k1, int64_t n0, int64_t n1, U* to, int64_t ld) const {
        const ConvLayout& l = layout_;
        const Axis &h = l.window.axis[1], &w = l.window.axis[2];
        const int64_t taps = l.window.taps(), size = l.window.out_size(), b = image / l.groups, channels = l.groups * l.ic;
        for (int64_t k = k0; k < k1; ++k, to += ld) {
            const int64_t tap = k % taps, c = image % l.groups * l.ic + k / taps;
            const int64_t set = (b * offset_groups_ + c / (channels / offset_groups_)) * taps + tap;
            const T* plane = in[0].as<T>() + (b * channels + c) * h.in * w.in;
            const T *dy = in[2].as<T>() + 2 * set * size, *dx = dy + size;
            const T* mask = mask_ ? in[4].as<T>() + set * size : nullptr;
            for (int64_t n = n0; n < n1; ++n) {
                const U y = static_cast<U>(h.start(n / w.out) + tap / w.kernel * h.dilation) + widen(dy[n]);
                const U x = static_cast<U>(w.start(n % w.out) + tap % w.kernel * w.dilation) + widen(dx[n]);
                to[n - n0] = sample(plane, h.in, w.in, y, x) * (mask ? widen(mask[n]) : U{1});
            }
        }
    }
    ConvLayout layout_;
    int64_t offset_groups_;
    bool bias_, mask_;
};

class DeformConvKernel final : public Kernel {
  public:
    explicit DeformConvKernel(const NodeSpec& s)
        : attrs_(s.attrs), groups_(s.attrs.integer("group", 1)), offset_groups_(s.attrs.integer("offset_group", 1)),
          bias_(s.has_input(3)), mask_(s.has_input(4)) {
        for (size_t i : {0, 1, 2})
            if (!s.has_input(i)) throw BadOperand("input " + std::to_string(i) + " is missing");
        if (s.inputs[0].rank >= 0 && s.inputs[0].rank != 4) throw Unsupported("DeformConv over other than two spatial axes");
        visit<FloatTypes>(s.inputs[0].dtype, [](auto) { return 0; });
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const DType dtype = in[0].dtype();
        const Shape& x = in[0].shape();
        if (in[1].dtype() != dtype || in[2].dtype() != dtype || (mask_ && in[4].dtype() != dtype)) throw BadOperand("the operands differ in type");
        if (x.rank != 4) throw BadOperand("the input " + x.str() + " must have two spatial axes");
        const ConvLayout l = conv_layout(attrs_, groups_, x, in[1].shape());
        if (offset_groups_ < 1 || x[1] % offset_groups_ != 0) throw BadOperand("offset_group is " + std::to_string(offset_groups_) + " for " + std::to_string(x[1]) + " channels");
        expect(in[2], "the offsets", l, 2);
        if (bias_) check_bias(in[3], dtype, l.groups * l.oc);
        if (mask_) expect(in[4], "the mask", l, 1);
        out[0] = {dtype, l.out};
        return visit<FloatTypes>(dtype, [&](auto type) -> std::unique_ptr<Prepared> {
            return std::make_unique<DeformConv<decltype(type)>>(l, offset_groups_, bias_, mask_);
        });
    }

  private:
    void expect(const Tensor& t, const char* what, const ConvLayout& l, int64_t values) const {
        if (offset_groups_ > kMostElements / (2 * l.window.taps())) throw BadOperand("offset_group is too large");
        const Shape wanted{l.batch, offset_groups_ * l.window.taps() * values, l.out[2], l.out[3]};
        if (t.shape() != wanted) throw BadOperand(std::string(what) + " " + t.shape().str() + " must be " + wanted.str());
    }
    WindowAttrs attrs_;
    int64_t groups_, offset_groups_;
    bool bias_, mask_;
};

}  // namespace

void register_deform_conv(Registry& r) {
    r.add("DeformConv", [](const NodeSpec& s) { return std::make_unique<DeformConvKernel>(s); });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
