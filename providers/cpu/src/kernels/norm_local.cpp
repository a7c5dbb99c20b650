// LRN (https://onnx.ai/onnx/operators/onnx__LRN.html): every element over a power of the mean square of the channels
// around it. A tile of positions is worked on through all its channels.
#include <algorithm>

#include "kernels/dtypes.h"
#include "kernels/gemm.h"
#include "kernels/vmath.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

constexpr int64_t kLocalTile = 512;  // positions

struct LocalSpec {
    int64_t before = 0, after = 0;  // channels around one
    double alpha = 0, beta = 0, bias = 1;  // alpha per element of the window
};

// y = x / scale^beta. Square roots do for the exponent that nearly every model has.
void divide_by_power(const float* x, const float* scale, float beta, float* y, int64_t n) {
    for (int64_t i = 0; i < n; i += kLanes) {
        const int left = static_cast<int>(std::min<int64_t>(kLanes, n - i));
        const vf s = load_part(scale + i, left);
        const vf root = vsqrt(s), power = beta == 0.75f ? root * vsqrt(root) : vpow(s, splat(beta));
        store_part(y + i, load_part(x + i, left) / power, left);
    }
}
void divide_by_power(const double* x, const double* scale, double beta, double* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] / std::pow(scale[i], beta);
}

template <class T> class RunLocal final : public Prepared {
    using A = wide_t<T>;

  public:
    RunLocal(const LocalSpec& spec, const Shape& x) : spec_(spec), samples_(x[0]), channels_(x[1]), inner_(x.count(2)) {
        flops = static_cast<double>(samples_ * channels_) * static_cast<double>(inner_) * (10.0 + 2.0 * static_cast<double>(spec.before + spec.after));
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        if (channels_ == 0) return;
        const int64_t tiles = (inner_ + kLocalTile - 1) / kLocalTile;
        parallel_ranges(context.threads, samples_ * tiles, 1, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const int64_t p = i % tiles * kLocalTile, at = i / tiles * channels_ * inner_ + p;
                tile(in[0].as<T>() + at, out[0].as<T>() + at, std::min(kLocalTile, inner_ - p));
            }
        });
    }

  private:
    void tile(const T* x, T* y, int64_t n) const {
        if constexpr (is_narrow<T>) {
            A* wide = static_cast<A*>(scratch(1, sizeof(A) * static_cast<size_t>(channels_ * n)));
            for (int64_t c = 0; c < channels_; ++c) widen(x + c * inner_, wide + c * n, n);
            A row[kLocalTile];
            for (int64_t c = 0; c < channels_; ++c) {
                channel(wide, n, c, row, n);
                narrow(row, y + c * inner_, n);
            }
        } else {
            for (int64_t c = 0; c < channels_; ++c) channel(x, inner_, c, y + c * inner_, n);
        }
    }
    void channel(const A* x, int64_t ld, int64_t c, A* y, int64_t n) const {
        A squares[kLocalTile] = {};
        const int64_t last = std::min(channels_ - 1, c + spec_.after);
        for (int64_t k = std::max<int64_t>(0, c - spec_.before); k <= last; ++k)
            for (int64_t i = 0; i < n; ++i) squares[i] += x[k * ld + i] * x[k * ld + i];
        const A bias = static_cast<A>(spec_.bias), alpha = static_cast<A>(spec_.alpha);
        for (int64_t i = 0; i < n; ++i) squares[i] = bias + alpha * squares[i];
        divide_by_power(x + c * ld, squares, static_cast<A>(spec_.beta), y, n);
    }
    LocalSpec spec_;
    int64_t samples_, channels_, inner_;
};

class LocalNorm final : public Kernel {
  public:
    explicit LocalNorm(const NodeSpec& s) {
        if (!s.has_input(0)) throw Unsupported("the first input is missing");
        visit<FloatTypes>(s.inputs[0].dtype, [](auto) {});
        const int64_t size = s.attrs.integer("size", 0);
        if (size < 1) throw Unsupported("size is missing or not positive");
        spec_.before = (size - 1) / 2;
        spec_.after = size - 1 - spec_.before;
        spec_.alpha = s.attrs.real("alpha", 1e-4) / static_cast<double>(size);
        spec_.beta = s.attrs.real("beta", 0.75);
        spec_.bias = s.attrs.real("bias", 1);
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape& x = in[0].shape();
        if (x.rank < 2) throw BadOperand("the input has shape " + x.str() + ", it must have channels");
        LocalSpec spec = spec_;
        spec.before = std::min(spec.before, x[1]);
        spec.after = std::min(spec.after, x[1]);
        out[0] = in[0].desc;
        return visit<FloatTypes>(in[0].dtype(), [&](auto t) -> std::unique_ptr<Prepared> {
            return std::make_unique<RunLocal<decltype(t)>>(spec, x);
        });
    }

  private:
    LocalSpec spec_;
};

}  // namespace

void register_norm_local(Registry& r) {
    r.add("LRN", [](const NodeSpec& s) { return std::make_unique<LocalNorm>(s); });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
