// ConvInteger and QLinearConv. Rows of positions x columns of output channels through the 8-bit engine, the columns of the
// window made a block of positions at a time. Where few products are summed (depthwise above all), float32 holds every sum
// exactly, and the depthwise form of conv.h is used.
// https://onnx.ai/onnx/operators/onnx__ConvInteger.html, __QLinearConv.html
#include <cmath>
#include <limits>

#include "kernels/conv.h"
#include "kernels/product.h"
#include "kernels/qgemm.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

// Which input is what; -1: the operator has no such input.
struct Inputs {
    int x, w, x_zero, w_zero, x_scale, w_scale, y_scale, y_zero, bias;
    bool quantized;
};
constexpr Inputs kConvInteger{0, 1, 2, 3, -1, -1, -1, -1, -1, false};
constexpr Inputs kQLinearConv{0, 3, 2, 5, 1, 4, 6, 7, 8, true};

constexpr int64_t kBlock = 2 * kPanel;           // positions that a block has at least
constexpr int64_t kBlockBytes = 256 * 1024;
constexpr int64_t kExactProducts = (1 << 24) / (255 * 255);

bool is_byte(DType t) { return t == DType::U8 || t == DType::I8; }
int32_t byte_at(const Tensor& t, int64_t i) { return t.dtype() == DType::I8 ? t.as<int8_t>()[i] : t.as<uint8_t>()[i]; }

using PackedGroups = std::vector<PackedBytes>;
std::shared_ptr<const PackedGroups> pack_groups(const Tensor& w, int64_t groups) {
    auto packed = std::make_shared<PackedGroups>();
    const int64_t oc = w.shape()[0] / groups, depth = w.shape().count(1);
    for (int64_t g = 0; g < groups; ++g)
        packed->push_back(pack_bytes({w.as<uint8_t>() + g * oc * depth, w.dtype() == DType::I8, 1, depth}, depth, oc));
    return packed;
}

// What becomes of the sums of a channel.
struct Requantization {
    std::vector<float> multiplier;  // one a channel, or empty: the sums are the result
    const int32_t* bias = nullptr;
    float zero = 0;
    template <class T> T value(int32_t sum, int64_t channel) const {
        constexpr float low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
        if (bias) sum = static_cast<int32_t>(static_cast<uint32_t>(sum) + static_cast<uint32_t>(bias[channel]));
        float v = std::nearbyint(static_cast<float>(sum) * multiplier[static_cast<size_t>(channel)]) + zero;
        v = v > low ? v : low;
        return static_cast<T>(v < high ? v : high);
    }
};
template <> int32_t Requantization::value<int32_t>(int32_t sum, int64_t) const { return sum; }

struct Operands {
    const Tensor *x, *w;
    int32_t x_zero = 0;
    std::vector<int32_t> w_zero;  // one, or one a channel
    Requantization to;
};

class IntegerConv final : public Prepared {
  public:
    IntegerConv(const Inputs& at, const ConvLayout& layout, std::shared_ptr<const PackedGroups> packed)
        : at_(at), layout_(layout), packed_(std::move(packed)) {
        if (Depthwise::applies(layout) && layout.depth() <= kExactProducts) {
            depthwise_ = std::make_unique<Depthwise>(layout);
            x_count_ = layout.batch * layout.groups * layout.window.in_size();
            w_count_ = layout.groups * layout.oc * layout.depth();
            workspace = static_cast<size_t>(x_count_ + w_count_ + layout.out.count()) * 4;
        }
        flops = layout.flops();
        algorithm = depthwise_ ? "depthwise, exact in float32" : "8-bit gemm";
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const Operands o = operands(in);
        switch (out[0].dtype()) {
            case DType::I8: return compute(context, o, out[0].as<int8_t>());
            case DType::U8: return compute(context, o, out[0].as<uint8_t>());
            default: return compute(context, o, out[0].as<int32_t>());
        }
    }

  private:
    Operands operands(const Tensor* in) const {
        Operands o{&in[at_.x], &in[at_.w], at_.x_zero >= 0 ? byte_at(in[at_.x_zero], 0) : 0, {}, {}};
        for (int64_t i = 0; at_.w_zero >= 0 && i < in[at_.w_zero].count(); ++i) o.w_zero.push_back(byte_at(in[at_.w_zero], i));
        if (o.w_zero.empty()) o.w_zero.push_back(0);
        if (!at_.quantized) return o;
        const Tensor& scale = in[at_.w_scale];
        const float rest = *in[at_.x_scale].as<float>(), y = *in[at_.y_scale].as<float>();
        for (int64_t c = 0; c < layout_.groups * layout_.oc; ++c)
            o.to.multiplier.push_back(rest * scale.as<float>()[scale.count() > 1 ? c : 0] / y);
        if (at_.bias >= 0) o.to.bias = in[at_.bias].as<int32_t>();
        if (at_.y_zero >= 0) o.to.zero = static_cast<float>(byte_at(in[at_.y_zero], 0));
        return o;
    }
    template <class T> void compute(const Context& context, const Operands& o, T* y) const {
        if (layout_.out.count() == 0) return;
        if (depthwise_) return as_float(context, o, y);
        const ConvLayout& l = layout_;
        const auto packed = packed_ ? packed_ : pack_groups(*o.w, l.groups);
        const int64_t size = l.window.out_size(), depth = l.depth();
        const int64_t step = std::min(size, round_up(std::max(kBlock, std::min(kBlockBytes / std::max<int64_t>(depth, 1), kBlock * 4)), kPanel));
        const int64_t blocks = (size + step - 1) / step, tasks = l.batch * l.groups * blocks;
        parallel_for(l.flops() < 1e5 ? 1 : context.threads, tasks, [&](int64_t task) {
            const int64_t first = task % blocks * step;
            block(o, task / blocks, (*packed)[static_cast<size_t>(task / blocks % l.groups)], first, std::min(step, size - first), y,
                  tasks == 1 ? context.threads : 1);
        });
    }
    // Positions [first, first + count) of one image (batch entry and group).
    template <class T>
    void block(const Operands& o, int64_t image, const PackedBytes& w, int64_t first, int64_t count, T* y, int threads) const {
        const ConvLayout& l = layout_;
        const int64_t depth = l.depth(), size = l.window.out_size(), channel = image % l.groups * l.oc;
        uint8_t* rows = static_cast<uint8_t*>(scratch(1, static_cast<size_t>(count * depth)));
        uint8_t* panel = static_cast<uint8_t*>(scratch(2, static_cast<size_t>(depth * kPanel)));
        const Columns<uint8_t, uint8_t> columns(l.window, o.x->as<uint8_t>() + image * l.ic * l.window.in_size(), static_cast<uint8_t>(o.x_zero));
        for (int64_t n = 0; n < count; n += kPanel) {
            const int64_t width = std::min<int64_t>(kPanel, count - n);
            columns.fill(0, depth, first + n, first + n + width, panel, kPanel);
            for (int64_t k0 = 0; k0 < depth; k0 += 64)
                for (int64_t j = 0; j < width; ++j)
                    for (int64_t k = k0; k < std::min(depth, k0 + 64); ++k) rows[(n + j) * depth + k] = panel[k * kPanel + j];
        }
        const ZeroPoint x_zero{&o.x_zero, 0}, w_zero{o.w_zero.data() + (o.w_zero.size() > 1 ? channel : 0), o.w_zero.size() > 1 ? 1 : 0};
        T* to = y + image * l.oc * size + first;
        byte_gemm(count, {rows, o.x->dtype() == DType::I8, depth, 1}, x_zero, w, w_zero, [&](const int32_t* tile, int64_t row, int64_t column, int64_t height, int64_t width) {
            for (int64_t j = 0; j < width; ++j)
                for (int64_t r = 0; r < height; ++r) to[(column + j) * size + row + r] = o.to.template value<T>(tile[r * kPanel + j], channel + column + j);
        }, threads);
    }
    template <class T> void as_float(const Context& context, const Operands& o, T* y) const {
        const ConvLayout& l = layout_;
        float *x = static_cast<float*>(context.workspace), *w = x + x_count_, *sums = w + w_count_;
        const int64_t size = l.window.out_size(), taps = l.window.taps();
        subtract(*o.x, o.x_zero, 0, x_count_, x);
        for (int64_t c = 0; c < l.groups * l.oc; ++c) subtract(*o.w, o.w_zero[o.w_zero.size() > 1 ? static_cast<size_t>(c) : 0], c * taps, taps, w + c * taps);
        depthwise_->run(x, w, sums, Epilogue{}, l.flops() < 1e5 ? 1 : context.threads);
        for (int64_t i = 0; i < l.batch * l.groups * l.oc; ++i)
            for (int64_t j = i * size; j < (i + 1) * size; ++j) y[j] = o.to.template value<T>(static_cast<int32_t>(sums[j]), i % (l.groups * l.oc));
    }
    static void subtract(const Tensor& t, int32_t zero, int64_t first, int64_t n, float* to) {
        const bool is_signed = t.dtype() == DType::I8;
        for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>((is_signed ? t.as<int8_t>()[first + i] : t.as<uint8_t>()[first + i]) - zero);
    }
    Inputs at_;
    ConvLayout layout_;
    std::shared_ptr<const PackedGroups> packed_;
    std::unique_ptr<Depthwise> depthwise_;
    int64_t x_count_ = 0, w_count_ = 0;
};

void check_values(const Tensor& t, const char* what, DType dtype, int64_t channels) {
    if (t.dtype() != dtype) throw BadOperand(std::string(what) + " is " + name_of(t.dtype()) + ", expected " + name_of(dtype));
    if (t.count() != 1 && t.count() != channels)
        throw BadOperand(std::string(what) + " has " + std::to_string(t.count()) + " values" + (channels == 1 ? "; it needs one" : "; it needs one, or one a channel"));
}

class IntegerConvKernel final : public Kernel {
  public:
    IntegerConvKernel(const NodeSpec& s, const Inputs& at) : at_(at), attrs_(s.attrs), groups_(s.attrs.integer("group", 1)) {
        for (int required : {at.x, at.w, at.x_scale, at.w_scale, at.y_scale})
            if (required >= 0 && !s.has_input(static_cast<size_t>(required))) throw BadOperand("input " + std::to_string(required) + " is missing");
        for (int* optional : {&at_.x_zero, &at_.w_zero, &at_.y_zero, &at_.bias})
            if (*optional >= 0 && !s.has_input(static_cast<size_t>(*optional))) *optional = -1;
        const Operand &x = s.inputs[static_cast<size_t>(at.x)], &w = s.inputs[static_cast<size_t>(at.w)];
        if (!is_byte(x.dtype) || !is_byte(w.dtype)) throw Unsupported(std::string("an integer convolution of ") + name_of(x.dtype) + " and " + name_of(w.dtype));
        if (x.rank > 5) throw Unsupported("convolution over more than three spatial axes");
        if (groups_ < 1) throw BadOperand("group is " + std::to_string(groups_));
        if (w.constant && w.shape.rank > 2 && w.shape[0] % groups_ == 0 && w.shape.count() > 0)
            packed_ = packed_as<PackedGroups>(w.key, "byte-conv" + std::to_string(kPanel) + "x" + std::to_string(kGroup) + "g" + std::to_string(groups_) + name_of(w.dtype) + w.shape.str(),
                                              [&] { return pack_groups(*w.constant, groups_); });
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const ConvLayout l = conv_layout(attrs_, groups_, in[at_.x].shape(), in[at_.w].shape());
        check_operands(in, l.groups * l.oc);
        out[0] = {at_.quantized ? in[at_.y_zero >= 0 ? at_.y_zero : at_.x].dtype() : DType::I32, l.out};
        return std::make_unique<IntegerConv>(at_, l, packed_);
    }

  private:
    void check_operands(const Tensor* in, int64_t channels) const {
        if (!is_byte(in[at_.x].dtype()) || !is_byte(in[at_.w].dtype())) throw BadOperand("the operands must have 8 bits");
        if (at_.x_zero >= 0) check_values(in[at_.x_zero], "the input's zero point", in[at_.x].dtype(), 1);
        if (at_.w_zero >= 0) check_values(in[at_.w_zero], "the weights' zero point", in[at_.w].dtype(), channels);
        if (!at_.quantized) return;
        check_values(in[at_.x_scale], "the input's scale", DType::F32, 1);
        check_values(in[at_.w_scale], "the weights' scale", DType::F32, channels);
        check_values(in[at_.y_scale], "the output's scale", DType::F32, 1);
        if (at_.y_zero >= 0) check_values(in[at_.y_zero], "the output's zero point", in[at_.y_zero].dtype() == DType::I8 ? DType::I8 : DType::U8, 1);
        if (at_.bias >= 0) check_bias(in[at_.bias], DType::I32, channels);
    }
    Inputs at_;
    WindowAttrs attrs_;
    int64_t groups_;
    std::shared_ptr<const PackedGroups> packed_;
};

}  // namespace

void register_conv_integer(Registry& r) {
    r.add("ConvInteger", [](const NodeSpec& s) { return std::make_unique<IntegerConvKernel>(s, kConvInteger); });
    r.add("QLinearConv", [](const NodeSpec& s) { return std::make_unique<IntegerConvKernel>(s, kQLinearConv); });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
