// BatchNormalization (https://onnx.ai/onnx/operators/onnx__BatchNormalization.html), with the statistics given, or taken
// from the batch (training_mode).
#include <cmath>

#include "kernels/dtypes.h"
#include "kernels/norm.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

enum : int { kX, kScale, kBias, kMean, kVariance };

struct BatchSpec {
    int64_t samples = 1, channels = 1, spatial = 1;
    bool training = false, running[2] = {};  // which running statistics are wanted
    double momentum = 0.9, epsilon = 1e-5;
};

template <class T> class RunBatch final : public Prepared {
    using A = wide_t<T>;

  public:
    explicit RunBatch(const BatchSpec& spec) : spec_(spec), plan_(Shape{spec.samples, spec.channels, spec.spatial}, outer_axes()) {
        workspace = sizeof(A) * (static_cast<size_t>(4 * spec.channels) + (spec.training ? plan_.partials() : 0));
        flops = (spec.training ? 8.0 : 3.0) * static_cast<double>(spec.samples * spec.channels) * static_cast<double>(spec.spatial);
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const int64_t channels = spec_.channels;
        A *mean = static_cast<A*>(context.workspace), *factor = mean + channels, *bias = factor + channels, *variance = bias + channels;
        if (spec_.training) {
            measure(context, in[kX].as<T>(), mean, variance, variance + channels);
            if (spec_.running[0]) blend(in[kMean], mean, out[1]);
            if (spec_.running[1]) blend(in[kVariance], variance, out[2]);
        } else {
            read_reals(in[kMean].dtype(), in[kMean].data, 0, mean, channels);
            read_reals(in[kVariance].dtype(), in[kVariance].data, 0, variance, channels);
        }
        read_reals(in[kScale].dtype(), in[kScale].data, 0, factor, channels);
        read_reals(in[kBias].dtype(), in[kBias].data, 0, bias, channels);
        for (int64_t c = 0; c < channels; ++c) factor[c] /= std::sqrt(variance[c] + static_cast<A>(spec_.epsilon));
        apply(context, in[kX].as<T>(), mean, factor, bias, out[0].as<T>());
    }

  private:
    static AxisSet outer_axes() {
        AxisSet axes;
        axes.has[0] = axes.has[2] = true;
        return axes;
    }
    void measure(const Context& context, const T* x, A* mean, A* variance, A* partials) const {
        const A count = static_cast<A>(plan_.reduced);
        Reducer<SumOp, T>::reduce(plan_, context.threads, x, mean, nullptr, partials);
        for (int64_t c = 0; c < spec_.channels; ++c) mean[c] /= count;
        Reducer<DeviationOp, T>::reduce(plan_, context.threads, x, variance, mean, partials);
        for (int64_t c = 0; c < spec_.channels; ++c) variance[c] /= count;
    }
    void blend(const Tensor& before, const A* now, const Tensor& out) const {
        const A keep = static_cast<A>(spec_.momentum);
        for (int64_t c = 0; c < spec_.channels; ++c) {
            A value;
            read_reals(before.dtype(), before.data, c, &value, 1);
            value = value * keep + now[c] * (1 - keep);
            write_reals(out.dtype(), &value, out.data, c, 1);
        }
    }
    void apply(const Context& context, const T* x, const A* mean, const A* factor, const A* bias, T* y) const {
        const int64_t channels = spec_.channels, spatial = spec_.spatial;
        if (spatial == 1) {
            parallel_ranges(context.threads, spec_.samples, 1 + kNormGrain / std::max<int64_t>(channels, 1), [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i)
                    map_blocks(x + i * channels, y + i * channels, channels, [&](const A* from, A* to, int64_t j, int64_t n) {
                        columns(from, to, mean + j, factor + j, bias + j, n);
                    });
            });
            return;
        }
        parallel_ranges(context.threads, spec_.samples * channels, 1 + kNormGrain / std::max<int64_t>(spatial, 1), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const int64_t c = i % channels;
                map_blocks(x + i * spatial, y + i * spatial, spatial, [&](const A* from, A* to, int64_t, int64_t n) {
                    affine(from, to, n, mean[c], factor[c], bias[c]);
                });
            }
        });
    }
    static void columns(const A* x, A* y, const A* mean, const A* factor, const A* bias, int64_t n) {
#pragma GCC ivdep
        for (int64_t j = 0; j < n; ++j) y[j] = (x[j] - mean[j]) * factor[j] + bias[j];
    }
    BatchSpec spec_;
    ReducePlan plan_;
};

class BatchNorm final : public Kernel {
  public:
    explicit BatchNorm(const NodeSpec& spec) {
        for (size_t i = 0; i < 5; ++i) {
            if (!spec.has_input(i)) throw Unsupported("an input is missing");
            visit<FloatTypes>(spec.inputs[i].dtype, [](auto) {});
        }
        spec_.training = spec.attrs.integer("training_mode", 0) != 0;
        spec_.momentum = spec.attrs.real("momentum", 0.9);
        spec_.epsilon = spec.attrs.real("epsilon", 1e-5);
        for (size_t i = 0; i < 2; ++i) spec_.running[i] = spec.has_output(i + 1);
        if (!spec_.training && (spec_.running[0] || spec_.running[1])) throw Unsupported("running statistics outside of training mode");
    }
    uint32_t inplace() const override { return 1; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape& x = in[kX].shape();
        if (x.rank < 1) throw BadOperand("the input is a scalar");
        BatchSpec spec = spec_;
        spec.samples = x[0];
        spec.channels = x.rank > 1 ? x[1] : 1;
        spec.spatial = x.rank > 2 ? x.count(2) : 1;
        for (int i = kScale; i <= kVariance; ++i) {
            visit<FloatTypes>(in[i].dtype(), [](auto) {});
            if (in[i].count() != spec.channels)
                throw BadOperand("input " + std::to_string(i) + " of shape " + in[i].shape().str() + " does not fit " + std::to_string(spec.channels) + " channels");
        }
        out[0] = in[kX].desc;
        if (spec.running[0]) out[1] = in[kMean].desc;
        if (spec.running[1]) out[2] = in[kVariance].desc;
        return visit<FloatTypes>(in[kX].dtype(), [&](auto t) -> std::unique_ptr<Prepared> {
            return std::make_unique<RunBatch<decltype(t)>>(spec);
        });
    }

  private:
    BatchSpec spec_;
};

}  // namespace

void register_norm_batch(Registry& r) {
    r.add("BatchNormalization", [](const NodeSpec& s) { return std::make_unique<BatchNorm>(s); });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
