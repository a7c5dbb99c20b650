// ConvTranspose: the gradient of a convolution by its input. Columns = weights^T x input, a few output channels and a block
// of input positions at a time, then the columns are added into the output (add_columns). In the window of the layout the
// output is what slides under it: axis.in is a size of y, axis.out one of x.
// https://onnx.ai/onnx/operators/onnx__ConvTranspose.html
#include "kernels/conv.h"
#include "kernels/dtypes.h"
#include "kernels/product.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

constexpr int64_t kChunkRows = 96;            // columns' rows of one chunk of output channels, roughly
constexpr int64_t kBlockElements = 64 * 1024;  // of columns

struct TransposeAttrs {
    WindowAttrs window;
    std::vector<int64_t> output_padding, output_shape;
    int64_t groups = 1;
};

// Pads and the output's size of one axis; everything is below 2^43 after the checks of window_axes().
void place_transposed(Axis& a, const TransposeAttrs& attrs, int spatial, int i) {
    const int64_t extra = axis_value(attrs.output_padding, "output_padding", spatial, i, 0, 0);
    const int64_t whole = (a.in - 1) * a.stride + extra + a.extent();
    const bool same = attrs.window.auto_pad == AutoPad::SameUpper || attrs.window.auto_pad == AutoPad::SameLower;
    const int64_t x = a.in;
    int64_t y = whole - a.pad - a.pad_end;
    if (!attrs.output_shape.empty() || same) {
        y = axis_value(attrs.output_shape, "output_shape", spatial, i, x * a.stride, 0);
        const int64_t total = std::max<int64_t>(0, whole - y), half = total / 2;
        a.pad = attrs.window.auto_pad == AutoPad::SameUpper ? half : total - half;
    }
    if (y < 0) throw BadOperand("the pads leave a negative output size");
    a.in = y;
    a.out = x;
}

ConvLayout transposed_layout(const TransposeAttrs& given, const Shape& x, const Shape& w) {
    if (w.rank != x.rank) throw BadOperand("the weights " + w.str() + " and the input " + x.str() + " differ in rank");
    check_size("the weights", w);
    TransposeAttrs attrs = given;
    take_kernel_shape(attrs.window, w);
    ConvLayout l;
    l.window = window_axes(attrs.window, x);
    if (attrs.groups < 1 || x[1] != w[0] || x[1] % attrs.groups != 0 || w[1] > kMostElements / attrs.groups)
        throw BadOperand("the weights " + w.str() + " do not suit the input " + x.str() + " in " + std::to_string(attrs.groups) + " groups");
    l.batch = x[0];
    l.groups = attrs.groups;
    l.ic = x[1] / attrs.groups;
    l.oc = w[1];
    l.out = {x[0], w[1] * attrs.groups};
    for (int i = 0; i < l.window.spatial; ++i) {
        Axis& a = l.window.axis[3 - l.window.spatial + i];
        if (static_cast<double>(a.in) * static_cast<double>(a.stride) + static_cast<double>(a.extent()) > static_cast<double>(kMostElements)) throw BadOperand("the output is too large");
        place_transposed(a, attrs, l.window.spatial, i);
        l.out.push_back(a.in);
    }
    check_size("the output", l.out);
    return l;
}

// The weights of each group, transposed, in chunks of output channels: (channel, tap) x input channel.
using Chunks = std::vector<PackedA>;
int64_t chunk_channels(int64_t oc, int64_t taps) { return std::min(std::max<int64_t>(oc, 1), std::max<int64_t>(1, kChunkRows / taps)); }

template <class T> std::shared_ptr<const Chunks> make_chunks(const Tensor& w, int64_t groups) {
    auto chunks = std::make_shared<Chunks>();
    const int64_t ic = w.shape()[0] / groups, oc = w.shape()[1], taps = w.shape().count(2), step = chunk_channels(oc, taps);
    std::vector<float> wide;
    const float* data = w.as<float>();
    if constexpr (is_narrow<T>) {
        wide.resize(static_cast<size_t>(w.count()));
        widen(w.as<T>(), wide.data(), w.count());
        data = wide.data();
    }
    for (int64_t g = 0; g < groups; ++g)
        for (int64_t o = 0; o < oc; o += step)
            chunks->push_back(pack_a(data + g * ic * oc * taps + o * taps, 1, oc * taps, std::min(step, oc - o) * taps, ic));
    return chunks;
}

template <class T> class TransposedConv final : public Prepared {
  public:
    using U = wide_t<T>;
    TransposedConv(const ConvLayout& layout, std::shared_ptr<const Chunks> chunks, bool bias)
        : layout_(layout), chunks_(std::move(chunks)), bias_(bias), step_(chunk_channels(layout.oc, layout.window.taps())) {
        if (is_narrow<T>) workspace = static_cast<size_t>(layout.out.count()) * sizeof(U);
        flops = 2.0 * static_cast<double>(layout.batch * layout.groups * layout.ic) * static_cast<double>(layout.window.out_size()) * static_cast<double>(layout.oc * layout.window.taps());
        algorithm = "gemm, columns added";
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const ConvLayout& l = layout_;
        U* y = is_narrow<T> ? static_cast<U*>(context.workspace) : reinterpret_cast<U*>(out[0].data);
        auto chunks = chunks_;
        if constexpr (std::is_same_v<U, float>)
            if (!chunks) chunks = make_chunks<T>(in[1], l.groups);
        const int64_t each = (l.oc + step_ - 1) / step_, tasks = l.batch * l.groups * each;
        parallel_for(context.threads, tasks, [&](int64_t task) {
            const int64_t image = task / each, o = task % each * step_;  // image: batch entry and group
            const Part part{image, image % l.groups, o, std::min(step_, l.oc - o)};
            compute(part, in, chunks ? &(*chunks)[static_cast<size_t>(part.group * each + task % each)] : nullptr, y, tasks == 1 ? context.threads : 1);
        });
        if constexpr (is_narrow<T>) narrow(y, out[0].as<T>(), l.out.count());
    }

  private:
    struct Part {
        int64_t image, group, channel, channels;
    };
    void compute(const Part& p, const Tensor* in, const PackedA* weights, U* all, int threads) const {
        const ConvLayout& l = layout_;
        const int64_t size = l.window.in_size(), taps = l.window.taps(), rows = p.channels * taps;
        U* y = all + (p.image * l.oc + p.channel) * size;
        for (int64_t c = 0; c < p.channels; ++c)
            std::fill(y + c * size, y + (c + 1) * size, bias_ ? widen(in[2].as<T>()[p.group * l.oc + p.channel + c]) : U{});
        const int64_t width = l.window.axis[2].out, height = l.window.out_size() / std::max<int64_t>(width, 1);
        const int64_t most = std::max<int64_t>(64, kBlockElements / rows);
        const int64_t x_step = std::min(width, most), row_step = std::max<int64_t>(1, most / std::max<int64_t>(width, 1));
        for (int64_t row = 0; row < height && width > 0; row += row_step)
            for (int64_t x = 0; x < width; x += x_step) {
                const Positions at{row, std::min(height, row + row_step), x, std::min(width, x + x_step)};
                const int64_t n = at.count();
                U* columns = static_cast<U*>(scratch(1, static_cast<size_t>(rows * n) * sizeof(U)));
                make_columns(p, in, weights, row * width + x, n, columns, threads);
                for (int64_t c = 0; c < p.channels; ++c) add_columns(l.window, at, columns + c * taps * n, n, y + c * size);
            }
    }
    void make_columns(const Part& p, const Tensor* in, const PackedA* weights, int64_t first, int64_t n, U* columns, int threads) const {
        const ConvLayout& l = layout_;
        const int64_t size = l.window.out_size(), taps = l.window.taps();
        const T* x = in[0].as<T>() + p.image * l.ic * size + first;
        if constexpr (std::is_same_v<U, float>) {
            gemm_filled(*weights, n, [&](int64_t k0, int64_t k1, int64_t n0, int64_t n1, float* to, int64_t ld) {
                for (int64_t k = k0; k < k1; ++k, to += ld) copy_strided(x + k * size + n0, 1, to, n1 - n0);
            }, columns, n, Epilogue{}, threads);
        } else {
            const T* w = in[1].as<T>() + (p.group * l.ic * l.oc + p.channel) * taps;
            plain_product(p.channels * taps, n, l.ic, w, {1, l.oc * taps}, x, {size, 1}, columns);
        }
    }
    ConvLayout layout_;
    std::shared_ptr<const Chunks> chunks_;
    bool bias_;
    int64_t step_;
};

class TransposeKernel final : public Kernel {
  public:
    explicit TransposeKernel(const NodeSpec& s) {
        if (!s.has_input(0) || !s.has_input(1)) throw BadOperand("the input or the weights are missing");
        if (s.inputs[0].rank > 5) throw Unsupported("transposed convolution over more than three spatial axes");
        attrs_ = {WindowAttrs(s.attrs), s.attrs.integers("output_padding"), s.attrs.integers("output_shape"), s.attrs.integer("group", 1)};
        if (attrs_.groups < 1) throw BadOperand("group is " + std::to_string(attrs_.groups));
        bias_ = s.has_input(2);
        const Operand& w = s.inputs[1];
        visit<FloatTypes>(w.dtype, [&](auto type) {
            using T = decltype(type);
            if constexpr (std::is_same_v<wide_t<T>, float>)
                if (w.constant && w.shape.rank > 2 && w.shape.count() > 0 && w.shape[0] % attrs_.groups == 0)
                    chunks_ = packed_as<Chunks>(w.key, "conv-transpose" + std::to_string(kPackedRows) + "g" + std::to_string(attrs_.groups) + name_of(w.dtype) + w.shape.str(),
                                                [&] { return make_chunks<T>(*w.constant, attrs_.groups); });
            return 0;
        });
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const DType dtype = in[0].dtype();
        if (in[1].dtype() != dtype) throw BadOperand(std::string("the input is ") + name_of(dtype) + ", the weights are " + name_of(in[1].dtype()));
        const ConvLayout l = transposed_layout(attrs_, in[0].shape(), in[1].shape());
        if (bias_) check_bias(in[2], dtype, l.groups * l.oc);
        out[0] = {dtype, l.out};
        return visit<FloatTypes>(dtype, [&](auto type) -> std::unique_ptr<Prepared> {
            return std::make_unique<TransposedConv<decltype(type)>>(l, chunks_, bias_);
        });
    }

  private:
    TransposeAttrs attrs_;
    std::shared_ptr<const Chunks> chunks_;
    bool bias_ = false;
};

}  // namespace

void register_conv_transpose(Registry& r) {
    r.add("ConvTranspose", [](const NodeSpec& s) { return std::make_unique<TransposeKernel>(s); });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
