// opweave.BlockedDepthwise (X blocked, W [C, 1, kernel...], bias or omitted, residual like the output or omitted; the
// attributes of Conv, activation, activation_params): activation(conv(X, W) + bias + residual) with one filter a channel.
#include "kernels/blocked_window.h"
#include "kernels/conv.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

// [block][tap][16], zeros past the last channel.
using BlockedFilters = std::vector<float>;

std::shared_ptr<const BlockedFilters> pack_filters(const Tensor& w) {
    const int64_t channels = w.shape()[0], taps = w.shape().count(1);
    auto packed = std::make_shared<BlockedFilters>(static_cast<size_t>(blocks_of(channels) * taps * kBlockLanes));
    for (int64_t c = 0; c < channels; ++c)
        for (int64_t t = 0; t < taps; ++t)
            (*packed)[static_cast<size_t>((c / kBlockLanes * taps + t) * kBlockLanes + c % kBlockLanes)] = w.as<float>()[c * taps + t];
    return packed;
}

struct Filter {
    vf bias;
    vf begin() const { return bias; }
    vf tap(const float* weights) const { return load(weights); }
    vf join(vf sum, vf weight, vf x) const { return sum + weight * x; }
};

class DepthwiseRun final : public Prepared {
  public:
    DepthwiseRun(const ConvLayout& layout, const ActivationSpec& activation, std::shared_ptr<const BlockedFilters> filters)
        : layout_(layout), rows_(layout.window), activation_(activation), bounds_(activation), filters_(std::move(filters)) {
        flops = layout.flops();
        algorithm = "depthwise, blocked";
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const int64_t blocks = blocks_of(layout_.groups), count = rows_.count(), width = rows_.width();
        if (layout_.out.count() == 0) return;
        const auto filters = filters_ ? filters_ : pack_filters(in[1]);
        const int64_t taps = layout_.window.taps(), size = layout_.window.in_size();
        const int64_t grain = 4096 / (width * taps) + 1;
        parallel_ranges(context.threads, layout_.batch * blocks * count, grain, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const int64_t plane = i / count, block = plane % blocks;
                row({in[0].as<float>() + plane * size * kBlockLanes, filters->data() + block * taps * kBlockLanes,
                     in[2].present() ? in[2].as<float>() : nullptr, block * kBlockLanes,
                     in[3].present() ? in[3].as<float>() + i * width * kBlockLanes : nullptr, out[0].as<float>() + i * width * kBlockLanes}, i % count);
            }
        });
    }

  private:
    struct Row {
        const float *plane, *filters, *bias;
        int64_t channel;
        const float* residual;
        float* y;
    };
    vf bias(const Row& r, int part) const {
        const int64_t at = r.channel + part * kLanes, left = std::clamp<int64_t>(layout_.groups - at, 0, kLanes);
        return r.bias && left > 0 ? load_part(r.bias + at, static_cast<int>(left)) : vf{};
    }
    void row(const Row& r, int64_t oy) const {
        for (int part = 0; part < kBlockParts; ++part) {
            const Filter rule{bias(r, part)};
            rows_.each_run(r.plane + part * kLanes, r.filters + part * kLanes, oy, [&](const BlockedTaps& taps, int64_t first, int64_t n) {
                float* y = r.y + first * kBlockLanes + part * kLanes;
                const float* residual = r.residual ? r.residual + (y - r.y) : nullptr;
                rows_.compute(taps, n, rule, [&](vf sum, int64_t output) {
                    if (residual) sum += load(residual + output * kBlockLanes);
                    store(y + output * kBlockLanes, bounds_.apply(sum));
                });
            });
        }
        if (!bounds_.whole) activate(activation_, r.y, r.y, rows_.width() * kBlockLanes);
    }
    ConvLayout layout_;
    BlockedRows rows_;
    ActivationSpec activation_;
    Bounds bounds_;
    std::shared_ptr<const BlockedFilters> filters_;
};

class DepthwiseKernel final : public Kernel {
  public:
    explicit DepthwiseKernel(const NodeSpec& s)
        : attrs_(s.attrs), groups_(s.attrs.integer("group", 1)), inputs_(s.inputs.size()), activation_(activation_of(s.attrs)) {
        if (!s.has_input(0) || !s.has_input(1) || inputs_ != 4) throw BadOperand("operands are missing");
        const Operand& w = s.inputs[1];
        if (w.constant && w.dtype == DType::F32 && w.rank > 2)
            filters_ = packed_as<BlockedFilters>(w.key, "depthwise16" + w.shape.str(), [&] { return pack_filters(*w.constant); });
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        expect_floats(in[0], "the input");
        expect_floats(in[1], "the weights");
        const Shape &x = in[0].shape(), &w = in[1].shape();
        const ConvLayout l = conv_layout(attrs_, groups_, plain_shape(x, groups_), w);
        if (l.oc != 1 || w[1] != 1 || l.window.spatial > 2) throw BadOperand("the weights " + w.str() + " are not one filter a channel");
        check_bias(in[2], DType::F32, groups_);
        out[0] = {DType::F32, blocked_shape(l.out)};
        if (in[3].present() && in[3].desc.shape != out[0].shape)
            throw BadOperand("the residual " + in[3].shape().str() + " differs from the output " + out[0].shape.str());
        return std::make_unique<DepthwiseRun>(l, activation_, filters_);
    }

  private:
    WindowAttrs attrs_;
    int64_t groups_;
    size_t inputs_;
    ActivationSpec activation_;
    std::shared_ptr<const BlockedFilters> filters_;
};

}  // namespace

void register_conv_blocked_depthwise(Registry& r) {
    r.add("BlockedDepthwise", [](const NodeSpec& s) { return std::make_unique<DepthwiseKernel>(s); }, "opweave");
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
