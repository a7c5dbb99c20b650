// Normalisations over any axes: LpNormalization, MeanVarianceNormalization (https://onnx.ai/onnx/operators/). Statistics
// of reduce.h are broadcast back over the input: y = (x - shift) / divisor, and 0 where the divisor is 0.
#include <cmath>

#include "kernels/dtypes.h"
#include "kernels/norm.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

enum class AxesNorm { L1, L2, MeanVariance };

template <class T> class RunAxes final : public Prepared {
    using A = wide_t<T>;

  public:
    RunAxes(AxesNorm kind, const Shape& x, const Shape& kept, const AxisSet& axes)
        : kind_(kind), plan_(x, axes), seen_(kept, x), count_(x.count()) {
        workspace = sizeof(A) * (static_cast<size_t>(2 * plan_.outputs) + plan_.partials());
        flops = 6.0 * static_cast<double>(count_);
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        A *shift = static_cast<A*>(context.workspace), *divisor = shift + plan_.outputs;
        const T* x = in[0].as<T>();
        measure(context, x, shift, divisor, divisor + plan_.outputs);
        parallel_ranges(context.threads, (count_ + kBlock - 1) / kBlock, kNormGrain / kBlock, [&](int64_t begin, int64_t end) {
            for (int64_t b = begin; b < end; ++b) {
                const int64_t at = b * kBlock;
                block(x + at, at, std::min(kBlock, count_ - at), shift, divisor, out[0].as<T>() + at);
            }
        });
    }

  private:
    template <class Op> void reduce(const Context& context, const T* x, const A* shift, A* to, A* partials) const {
        Reducer<Op, T>::reduce(plan_, context.threads, x, to, shift, partials);
    }
    void measure(const Context& context, const T* x, A* shift, A* divisor, A* partials) const {
        const int64_t n = plan_.outputs;
        const A count = static_cast<A>(plan_.reduced);
        std::fill(shift, shift + n, A{});
        switch (kind_) {
            case AxesNorm::L1: return reduce<AbsSumOp<Sign::Real>>(context, x, nullptr, divisor, partials);
            case AxesNorm::L2:
                reduce<SumSquareOp>(context, x, nullptr, divisor, partials);
                for (int64_t i = 0; i < n; ++i) divisor[i] = std::sqrt(divisor[i]);
                return;
            case AxesNorm::MeanVariance:
                reduce<SumOp>(context, x, nullptr, shift, partials);
                for (int64_t i = 0; i < n; ++i) shift[i] /= count;
                reduce<DeviationOp>(context, x, shift, divisor, partials);
                for (int64_t i = 0; i < n; ++i) divisor[i] = std::sqrt(divisor[i] / count) + static_cast<A>(1e-9);
        }
    }
    // The values of a statistic under elements [at, at + n).
    const A* under(const A* statistic, int64_t at, int64_t n, A* buffer) const {
        const int64_t first = seen_.contiguous(at, n);
        if (first >= 0) return statistic + first;
        seen_.read(statistic, at, n, buffer, sizeof(A));
        return buffer;
    }
    void block(const T* x, int64_t at, int64_t n, const A* shift, const A* divisor, T* y) const {
        A shifts[kBlock], divisors[kBlock];
        const A *s = under(shift, at, n, shifts), *d = under(divisor, at, n, divisors);
        map_blocks(x, y, n, [&](const A* from, A* to, int64_t j, int64_t count) {
            for (int64_t i = 0; i < count; ++i) to[i] = d[i + j] == 0 ? 0 : (from[i] - s[i + j]) / d[i + j];
        });
    }
    AxesNorm kind_;
    ReducePlan plan_;
    Broadcast seen_;
    int64_t count_;
};

class AxesNormKernel final : public Kernel {
  public:
    // No axes: all of them.
    AxesNormKernel(const NodeSpec& spec, AxesNorm kind, std::vector<int64_t> axes) : kind_(kind), axes_(std::move(axes)) {
        if (!spec.has_input(0)) throw Unsupported("the first input is missing");
        visit<FloatTypes>(spec.inputs[0].dtype, [](auto) {});
    }
    uint32_t inplace() const override { return 1; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape& x = in[0].shape();
        AxisSet cut;
        for (int64_t axis : axes_) cut.add(axis, x.rank);
        if (axes_.empty()) std::fill(cut.has, cut.has + x.rank, true);
        Shape kept = x;
        for (int i = 0; i < x.rank; ++i)
            if (cut.has[i]) kept[i] = 1;
        out[0] = in[0].desc;
        return visit<FloatTypes>(in[0].dtype(), [&](auto t) -> std::unique_ptr<Prepared> {
            return std::make_unique<RunAxes<decltype(t)>>(kind_, x, kept, cut);
        });
    }

  private:
    AxesNorm kind_;
    std::vector<int64_t> axes_;
};

std::unique_ptr<Kernel> make_lp(const NodeSpec& s) {
    const int64_t p = s.attrs.integer("p", 2);
    if (p != 1 && p != 2) throw Unsupported("a norm of order " + std::to_string(p));
    return std::make_unique<AxesNormKernel>(s, p == 1 ? AxesNorm::L1 : AxesNorm::L2, std::vector<int64_t>{s.attrs.integer("axis", -1)});
}

}  // namespace

void register_norm_axes(Registry& r) {
    r.add("LpNormalization", make_lp);
    r.add("MeanVarianceNormalization", [](const NodeSpec& s) {
        return std::make_unique<AxesNormKernel>(s, AxesNorm::MeanVariance, s.attrs.integers("axes", {0, 2, 3}));
    });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
