// opweave.BlockedPool (x blocked; attributes `kind`: MaxPool, AveragePool, GlobalMaxPool or GlobalAveragePool, `channels`,
// and those of the operator named).
#include <limits>

#include "kernels/blocked_window.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

struct NoTap {};
struct Largest {
    vf begin() const { return splat(-std::numeric_limits<float>::infinity()); }
    NoTap tap(const float*) const { return {}; }
    vf join(vf sum, NoTap, vf x) const { return x > sum ? x : sum; }
    vf finish(vf sum, float) const { return sum; }
};
struct Mean {
    vf begin() const { return vf{}; }
    NoTap tap(const float*) const { return {}; }
    vf join(vf sum, NoTap, vf x) const { return sum + x; }
    vf finish(vf sum, float count) const { return sum / count; }
};

// As in pool.cpp: how many positions each window covers along an axis, pads included or not, never those of ceil_mode.
std::vector<float> covered(const Axis& a, bool include_pad) {
    std::vector<float> counts;
    for (int64_t o = 0; o < a.out; ++o) {
        const int64_t within = floor_div(a.in + a.pad_end - 1 - a.start(o), a.dilation) + 1;
        counts.push_back(static_cast<float>(include_pad ? std::clamp<int64_t>(within, 0, a.kernel) : a.end_tap(o) - a.first_tap(o)));
    }
    return counts;
}

template <class Rule> class WindowPool final : public Prepared {
  public:
    WindowPool(const Window& w, int64_t planes, bool include_pad)
        : rows_(w), planes_(planes), size_(w.in_size()), taps_(w.taps()), tall_(covered(w.axis[1], include_pad)), wide_(covered(w.axis[2], include_pad)) {
        flops = static_cast<double>(planes * w.out_size() * kBlockLanes) * static_cast<double>(taps_);
        algorithm = "blocked";
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const int64_t count = rows_.count(), width = rows_.width();
        if (planes_ * count * width == 0) return;
        parallel_ranges(context.threads, planes_ * count, 4096 / (width * taps_) + 1, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i)
                for (int part = 0; part < kBlockParts; ++part)
                    row(in[0].as<float>() + i / count * size_ * kBlockLanes + part * kLanes, i % count, out[0].as<float>() + i * width * kBlockLanes + part * kLanes);
        });
    }

  private:
    void row(const float* plane, int64_t oy, float* y) const {
        const Rule rule;
        const float rows = tall_[static_cast<size_t>(oy)];
        rows_.each_run(plane, plane, oy, [&](const BlockedTaps& taps, int64_t first, int64_t n) {
            rows_.compute(taps, n, rule, [&](vf sum, int64_t output) {
                store(y + (first + output) * kBlockLanes, rule.finish(sum, rows * wide_[static_cast<size_t>(first + output)]));
            });
        });
    }
    BlockedRows rows_;
    int64_t planes_, size_, taps_;
    std::vector<float> tall_, wide_;
};

// A whole plane, in several partial results.
template <class Rule> class PlanePool final : public Prepared {
  public:
    PlanePool(int64_t planes, int64_t size) : planes_(planes), size_(size) {
        flops = static_cast<double>(planes * size * kBlockLanes);
        algorithm = "blocked";
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        parallel_ranges(context.threads, planes_, 2048 / std::max<int64_t>(size_, 1) + 1, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i)
                for (int part = 0; part < kBlockParts; ++part)
                    store(out[0].as<float>() + i * kBlockLanes + part * kLanes, plane(in[0].as<float>() + i * size_ * kBlockLanes + part * kLanes));
        });
    }

  private:
    static constexpr int kSums = 8;
    vf plane(const float* x) const {
        const Rule rule;
        vf sum[kSums];
        for (vf& s : sum) s = rule.begin();
        int64_t i = 0;
        for (; i + kSums <= size_; i += kSums)
            for (int k = 0; k < kSums; ++k) sum[k] = rule.join(sum[k], {}, load(x + (i + k) * kBlockLanes));
        for (int k = 0; i < size_; ++i, ++k) sum[k] = rule.join(sum[k], {}, load(x + i * kBlockLanes));
        for (int width = kSums / 2; width > 0; width /= 2)
            for (int k = 0; k < width; ++k) sum[k] = rule.join(sum[k], {}, sum[k + width]);
        return rule.finish(sum[0], static_cast<float>(size_));
    }
    int64_t planes_, size_;
};

class BlockedPool final : public Kernel {
  public:
    explicit BlockedPool(const NodeSpec& s)
        : attrs_(s.attrs), kind_(s.attrs.text("kind", "")), channels_(s.attrs.integer("channels", 0)), include_pad_(s.attrs.integer("count_include_pad", 0) != 0) {
        const std::string name = global() ? kind_.substr(6) : kind_;
        if (name != "MaxPool" && name != "AveragePool") throw BadOperand("kind is '" + kind_ + "'");
        if (!global() && attrs_.kernel.empty()) throw BadOperand("kernel_shape is missing");
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        expect_floats(in[0], "the input");
        const Shape plain = plain_shape(in[0].shape(), channels_);
        check_size("the input", plain);
        const int64_t planes = plain[0] * blocks_of(channels_);
        if (global()) {
            out[0] = {DType::F32, in[0].shape()};
            for (int i = 2; i < plain.rank; ++i) out[0].shape[i] = 1;
            return make<PlanePool>(planes, plain.count(2));
        }
        const Window w = place_window(attrs_, plain);
        if (w.spatial > 2) throw BadOperand("blocked pooling has one or two spatial axes");
        out[0] = {DType::F32, blocked_shape(w.out_shape(plain[0], channels_))};
        return make<WindowPool>(w, planes, include_pad_);
    }

  private:
    bool global() const { return kind_.rfind("Global", 0) == 0; }
    template <template <class> class Pool, class... A> std::unique_ptr<Prepared> make(A... a) const {
        if (kind_ == "MaxPool" || kind_ == "GlobalMaxPool") return std::make_unique<Pool<Largest>>(a...);
        return std::make_unique<Pool<Mean>>(a...);
    }
    WindowAttrs attrs_;
    std::string kind_;
    int64_t channels_;
    bool include_pad_;
};

}  // namespace

void register_pool_blocked(Registry& r) {
    r.add("BlockedPool", [](const NodeSpec& s) { return std::make_unique<BlockedPool>(s); }, "opweave");
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
