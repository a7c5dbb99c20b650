// opweave.ToBlocked (x [N, channels, spatial...]; attribute `channels`) and opweave.FromBlocked (the opposite): squares of
// channels and positions are transposed in registers. Lanes past the last channel become zeros.
#include "kernels/blocked.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

// Up to kLanes channels, `ld` apart, at n <= kLanes positions to one part of n blocks.
inline void pack_square(const float* x, int64_t ld, int channels, int n, float* to) {
    vf v[kLanes];
    for (int c = 0; c < kLanes; ++c) v[c] = c < channels ? (n == kLanes ? load(x + c * ld) : load_part(x + c * ld, n)) : vf{};
    transpose(v);
    for (int i = 0; i < n; ++i) store(to + i * kBlockLanes, v[i]);
}
inline void unpack_square(const float* from, int64_t ld, int channels, int n, float* y) {
    vf v[kLanes];
    for (int i = 0; i < kLanes; ++i) v[i] = i < n ? load(from + i * kBlockLanes) : vf{};
    transpose(v);
    for (int c = 0; c < channels; ++c) {
        if (n == kLanes) store(y + c * ld, v[c]);
        else store_part(y + c * ld, v[c], n);
    }
}
void pack_squares(const float* x, int64_t ld, int channels, int64_t begin, int64_t end, float* to) {
    int64_t i = begin;
    if (channels == kLanes)
        for (; i + kLanes <= end; i += kLanes) pack_square(x + i, ld, kLanes, kLanes, to + i * kBlockLanes);
    for (; i < end; i += kLanes) pack_square(x + i, ld, channels, static_cast<int>(std::min<int64_t>(kLanes, end - i)), to + i * kBlockLanes);
}
void unpack_squares(const float* from, int64_t ld, int channels, int64_t begin, int64_t end, float* y) {
    int64_t i = begin;
    if (channels == kLanes)
        for (; i + kLanes <= end; i += kLanes) unpack_square(from + i * kBlockLanes, ld, kLanes, kLanes, y + i);
    for (; i < end; i += kLanes) unpack_square(from + i * kBlockLanes, ld, channels, static_cast<int>(std::min<int64_t>(kLanes, end - i)), y + i);
}

class Reorder final : public Prepared {
  public:
    Reorder(const Shape& plain, bool to_blocked) : batch_(plain[0]), channels_(plain[1]), size_(plain.count(2)), to_blocked_(to_blocked) {
        algorithm = "transpose of squares";
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const int64_t blocks = blocks_of(channels_), strips = ceil_div(size_, kStrip);
        parallel_ranges(context.threads, batch_ * blocks * strips, 4, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i)
                strip(in[0].as<float>(), out[0].as<float>(), i / strips / blocks, i / strips % blocks, i % strips * kStrip);
        });
    }

  private:
    static constexpr int64_t kStrip = 256;  // positions
    void strip(const float* from, float* to, int64_t n, int64_t block, int64_t begin) const {
        const int64_t end = std::min(size_, begin + kStrip);
        for (int part = 0; part < kBlockParts; ++part) {
            const int64_t channel = block * kBlockLanes + part * kLanes;
            const int count = static_cast<int>(std::clamp<int64_t>(channels_ - channel, 0, kLanes));
            const int64_t plain = (n * channels_ + std::min(channel, channels_)) * size_;
            const int64_t blocked = (n * blocks_of(channels_) + block) * size_ * kBlockLanes + part * kLanes;
            if (to_blocked_) pack_squares(from + plain, size_, count, begin, end, to + blocked);
            else unpack_squares(from + blocked, size_, count, begin, end, to + plain);
        }
    }
    int64_t batch_, channels_, size_;
    bool to_blocked_;
};

class ReorderKernel final : public Kernel {
  public:
    ReorderKernel(const NodeSpec& s, bool to_blocked) : channels_(s.attrs.integer("channels", 0)), to_blocked_(to_blocked) {
        if (channels_ < 1) throw BadOperand("channels is " + std::to_string(channels_));
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        expect_floats(in[0], "the input");
        const Shape& x = in[0].shape();
        check_size("the input", x);
        if (to_blocked_ && (x.rank < 2 || x[1] != channels_))
            throw BadOperand("the input " + x.str() + " must have " + std::to_string(channels_) + " channels");
        const Shape plain = to_blocked_ ? x : plain_shape(x, channels_);
        out[0] = {DType::F32, to_blocked_ ? blocked_shape(x) : plain};
        return std::make_unique<Reorder>(plain, to_blocked_);
    }

  private:
    int64_t channels_;
    bool to_blocked_;
};

}  // namespace

void register_blocked_reorder(Registry& r) {
    r.add("ToBlocked", [](const NodeSpec& s) { return std::make_unique<ReorderKernel>(s, true); }, "opweave");
    r.add("FromBlocked", [](const NodeSpec& s) { return std::make_unique<ReorderKernel>(s, false); }, "opweave");
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
