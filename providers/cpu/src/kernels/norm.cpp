// Normalisations of contiguous rows: LayerNormalization, RMSNormalization, InstanceNormalization, GroupNormalization
// (https://onnx.ai/onnx/operators/), and the SimplifiedLayerNormalization of exported models. A row is `channels` runs
// of `spatial` elements, each run with a scale and a bias of its own; where rows differ only in which parameters they
// take, one engine serves all. Statistics come from the sums of reduce.h; f16 and bf16 are computed in f32.
#include <cmath>

#include "kernels/axes.h"
#include "kernels/broadcast.h"
#include "kernels/dtypes.h"
#include "kernels/gemm.h"
#include "kernels/norm.h"
#include "kernels/reduce.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

struct RowSpec {
    int64_t rows = 1, channels = 1, spatial = 1;
    int64_t groups = 1;          // row r takes parameters from (r % groups) * channels on; 0: by broadcasting
    bool centred = true;
    double epsilon = 1e-5;
    DType type = DType::F32;     // of scale, bias and y
    int64_t length() const { return channels * spatial; }
};

// Scale or bias as numbers to compute with.
template <class A> class Parameters {
  public:
    // `room` holds t.count() elements; it is used when the parameters are of another type than A.
    Parameters(const Tensor& t, const Shape& x, const RowSpec& spec, A* room) : spec_(spec), seen_(t.present() ? t.shape() : Shape{}, x) {
        if (!t.present()) return;
        data_ = room;
        if (t.dtype() == dtype_of<A>()) data_ = t.as<A>();
        else read_reals(t.dtype(), t.data, 0, room, t.count());
    }
    // The parameters of row r, null when there are none; `buffer` holds a row.
    const A* row(int64_t r, A* buffer) const {
        if (!data_ || spec_.channels == 0) return nullptr;
        if (spec_.groups > 0) return data_ + r % spec_.groups * spec_.channels;
        const int64_t at = seen_.contiguous(r * spec_.channels, spec_.channels);
        if (at >= 0) return data_ + at;
        seen_.read(data_, r * spec_.channels, spec_.channels, buffer, sizeof(A));
        return buffer;
    }

  private:
    const RowSpec& spec_;
    Broadcast seen_;
    const A* data_ = nullptr;
};

template <class T> class RunRows final : public Prepared {
    using A = wide_t<T>;

  public:
    RunRows(const RowSpec& spec, const Tensor* in, int bias) : spec_(spec), bias_(bias), scales_(in[1].count()) {
        const int64_t biases = bias_ > 0 ? in[bias_].count() : 0;
        workspace = sizeof(A) * static_cast<size_t>(scales_ + biases);
        flops = 8.0 * static_cast<double>(spec.rows) * static_cast<double>(spec.length());
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const int64_t n = spec_.length();
        A* room = static_cast<A*>(context.workspace);
        const Shape& x = in[0].shape();
        const Parameters<A> scales(in[1], spec_.groups ? in[1].shape() : x, spec_, room);
        const Parameters<A> biases(bias_ > 0 ? in[bias_] : Tensor{}, spec_.groups ? in[1].shape() : x, spec_, room + scales_);
        parallel_ranges(context.threads, spec_.rows, 1 + kNormGrain / std::max<int64_t>(n, 1), [&](int64_t begin, int64_t end) {
            A* buffer = static_cast<A*>(scratch(1, sizeof(A) * static_cast<size_t>(2 * spec_.channels)));
            for (int64_t r = begin; r < end; ++r) {
                const T* row = in[0].as<T>() + r * n;
                const Statistics<A> s = statistics<T>(row, n, spec_.centred, static_cast<A>(spec_.epsilon));
                write(row, s, scales.row(r, buffer), biases.row(r, buffer + spec_.channels), out[0].data, r * n);
                if (out_mean(out)) write_reals(out[1].dtype(), spec_.centred ? &s.mean : &s.inverse, out[1].data, r, 1);
                if (out_inverse(out)) write_reals(out[2].dtype(), &s.inverse, out[2].data, r, 1);
            }
        });
    }
    int outputs = 1;

  private:
    bool out_mean(const Tensor* out) const { return outputs > 1 && out[1].present(); }
    bool out_inverse(const Tensor* out) const { return outputs > 2 && out[2].present(); }
    void write(const T* x, const Statistics<A>& s, const A* scale, const A* bias, void* y, int64_t at) const {
        if (spec_.spatial == 1) {
            for_blocks(x, y, at, spec_.channels, [&](const A* from, A* to, int64_t j, int64_t n) {
                affine(from, to, n, s, scale + j, bias ? bias + j : nullptr);
            });
            return;
        }
        for (int64_t c = 0; c < spec_.channels; ++c) {
            const A factor = s.inverse * scale[c], shift = bias ? bias[c] : 0;
            for_blocks(x + c * spec_.spatial, y, at + c * spec_.spatial, spec_.spatial, [&](const A* from, A* to, int64_t, int64_t n) {
                affine(from, to, n, s.mean, factor, shift);
            });
        }
    }
    // f(from, to, offset, count) over pieces of x as A, each then stored to y[at:].
    template <class F> void for_blocks(const T* x, void* y, int64_t at, int64_t n, F&& f) const {
        if (spec_.type == dtype_of<T>()) return map_blocks(x, static_cast<T*>(y) + at, n, f);
        A block[kBlock];
        for (int64_t i = 0; i < n; i += kBlock) {
            const int64_t count = std::min(kBlock, n - i);
            widen(x + i, block, count);
            f(block, block, i, count);
            write_reals(spec_.type, block, y, at + i, count);
        }
    }
    RowSpec spec_;
    int bias_;
    int64_t scales_;
};

std::unique_ptr<Prepared> run_rows(const RowSpec& spec, const Tensor* in, int bias, int outputs) {
    return visit<FloatTypes>(in[0].dtype(), [&](auto t) -> std::unique_ptr<Prepared> {
        auto made = std::make_unique<RunRows<decltype(t)>>(spec, in, bias);
        made->outputs = outputs;
        return made;
    });
}

// X, Scale and maybe B, which broadcast to X; normalised over the axes from `axis` on.
class LayerNorm final : public Kernel {
  public:
    LayerNorm(const NodeSpec& spec, bool centred) : centred_(centred) {
        if (!spec.has_input(0) || !spec.has_input(1)) throw Unsupported("an input is missing");
        visit<FloatTypes>(spec.inputs[0].dtype, [](auto) {});
        visit<FloatTypes>(spec.inputs[1].dtype, [](auto) {});
        axis_ = spec.attrs.integer("axis", -1);
        epsilon_ = spec.attrs.real("epsilon", 1e-5);
        stash_ = static_cast<DType>(spec.attrs.integer("stash_type", 1));
        visit<FloatTypes>(stash_, [](auto) {});
        has_bias_ = centred && spec.has_input(2);
        outputs_ = static_cast<int>(std::min<size_t>(spec.outputs.size(), centred ? 3 : 2));
        for (int i = 0; i < outputs_; ++i) wanted_[i] = spec.has_output(static_cast<size_t>(i));
    }
    uint32_t inplace() const override { return 1; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape& x = in[0].shape();
        const int axis = checked_axis(axis_, x.rank);
        check(in[1], x, "scale");
        if (has_bias_) check(in[2], x, "bias");
        if (has_bias_) expect_dtype(in[2], in[1].dtype(), "bias");
        Shape kept = x;
        std::fill(kept.dims + axis, kept.dims + x.rank, 1);
        out[0] = {in[1].dtype(), x};
        for (int i = 1; i < outputs_; ++i)
            if (wanted_[i]) out[i] = {stash_, kept};
        RowSpec spec;
        spec.rows = x.count(0, axis);
        spec.channels = x.count(axis);
        spec.groups = 0;
        spec.centred = centred_;
        spec.epsilon = epsilon_;
        spec.type = in[1].dtype();
        return run_rows(spec, in, has_bias_ ? 2 : 0, outputs_);
    }

  private:
    static void check(const Tensor& t, const Shape& x, const char* name) {
        visit<FloatTypes>(t.dtype(), [](auto) {});
        if (t.shape().rank > x.rank) throw BadOperand(std::string(name) + " of shape " + t.shape().str() + " has more axes than the input " + x.str());
        Broadcast(t.shape(), x);
    }
    bool centred_, has_bias_, wanted_[3] = {};
    int64_t axis_;
    double epsilon_;
    DType stash_;
    int outputs_;
};

// X [N, C, ...] normalised by sample and group of channels; scale and bias hold C values.
class ChannelNorm final : public Kernel {
  public:
    // groups of 0: as many as channels.
    ChannelNorm(const NodeSpec& spec, int64_t groups) : groups_(groups), epsilon_(spec.attrs.real("epsilon", 1e-5)) {
        for (size_t i = 0; i < 3; ++i) {
            if (!spec.has_input(i)) throw Unsupported("an input is missing");
            visit<FloatTypes>(spec.inputs[i].dtype, [](auto) {});
        }
    }
    uint32_t inplace() const override { return 1; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape& x = in[0].shape();
        if (x.rank < 2) throw BadOperand("the input has shape " + x.str() + ", it must have channels");
        const int64_t channels = x[1], groups = groups_ ? groups_ : std::max<int64_t>(channels, 1);
        if (groups < 1 || channels % groups != 0)
            throw BadOperand(std::to_string(channels) + " channels do not make " + std::to_string(groups) + " groups");
        for (int i : {1, 2}) {
            expect_dtype(in[i], in[0].dtype(), i == 1 ? "scale" : "bias");
            if (in[i].count() != channels) throw BadOperand("scale and bias must hold " + std::to_string(channels) + " values");
        }
        out[0] = in[0].desc;
        RowSpec spec;
        spec.rows = x[0] * groups;
        spec.channels = channels / groups;
        spec.spatial = x.count(2);
        spec.groups = groups;
        spec.epsilon = epsilon_;
        spec.type = in[0].dtype();
        return run_rows(spec, in, 2, 1);
    }

  private:
    int64_t groups_;
    double epsilon_;
};

}  // namespace

void register_norm(Registry& r) {
    r.add("LayerNormalization", [](const NodeSpec& s) { return std::make_unique<LayerNorm>(s, true); });
    r.add("RMSNormalization", [](const NodeSpec& s) { return std::make_unique<LayerNorm>(s, false); });
    r.add("SimplifiedLayerNormalization", [](const NodeSpec& s) { return std::make_unique<LayerNorm>(s, false); });
    r.add("InstanceNormalization", [](const NodeSpec& s) { return std::make_unique<ChannelNorm>(s, 0); });
    r.add("GroupNormalization", [](const NodeSpec& s) {
        const int64_t groups = s.attrs.integer("num_groups", 0);
        if (groups < 1) throw Unsupported("num_groups is missing or not positive");
        return std::make_unique<ChannelNorm>(s, groups);
    });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
