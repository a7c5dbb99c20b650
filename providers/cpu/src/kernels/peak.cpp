// opweave.Peak: multiplies and adds in registers on every thread, `rounds` times, and does nothing else. Its time is what
// the profile means by the peak of this processor.
#include "kernels/simd.h"

#include "core/kernel.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

constexpr int kChains = kLanes == 16 ? 24 : 12;  // enough to hide the latency, few enough to stay in registers

float spin(int64_t rounds) {
    vf sums[kChains];
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) sums[i] = splat(static_cast<float>(i));
    const vf a = splat(0.5f), b = splat(1.f);
    for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 24
        for (int i = 0; i < kChains; ++i) sums[i] = sums[i] * a + b;
    }
    vf all{};
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) all += sums[i];
    return sum(all);
}

class RunPeak final : public Prepared {
  public:
    RunPeak(int64_t rounds, int64_t tasks) : rounds_(rounds) {
        flops = 2.0 * kChains * kLanes * static_cast<double>(rounds * tasks);
        algorithm = "fused multiply-adds";
    }
    void run(const Context& context, const Tensor*, const Tensor* out) const override {
        float* y = out[0].as<float>();
        parallel_for(context.threads, out[0].count(), [&](int64_t i) { y[i] = spin(rounds_); });
    }

  private:
    int64_t rounds_;
};

class PeakKernel final : public Kernel {
  public:
    explicit PeakKernel(const NodeSpec& s) : rounds_(s.attrs.integer("rounds", 1)), tasks_(s.attrs.integer("tasks", 1)) {}
    std::unique_ptr<Prepared> prepare(const Tensor*, TensorDesc* out) const override {
        out[0] = {DType::F32, Shape{tasks_}};
        return std::make_unique<RunPeak>(rounds_, tasks_);
    }

  private:
    int64_t rounds_, tasks_;
};

}  // namespace

void register_peak(Registry& r) {
    r.add("Peak", [](const NodeSpec& s) { return std::make_unique<PeakKernel>(s); }, "opweave");
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
