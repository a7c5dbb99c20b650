// Softmax, LogSoftmax, Hardmax (https://onnx.ai/onnx/operators/) along any axis.
#include "kernels/softmax.h"

#include "kernels/axes.h"
#include "kernels/dtypes.h"
#include "kernels/gemm.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

constexpr int64_t kSoftmaxGrain = 1 << 13;  // elements worth a thread

template <class T> class RunSoftmax final : public Prepared {
    using A = wide_t<T>;

  public:
    RunSoftmax(SoftmaxKind kind, const Lanes& lanes) : kind_(kind), lanes_(lanes) {
        flops = 12.0 * static_cast<double>(lanes.outer * lanes.inner) * static_cast<double>(lanes.length);
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const T* x = in[0].as<T>();
        T* y = out[0].as<T>();
        const int64_t n = lanes_.length;
        if (n == 0 || lanes_.outer == 0 || lanes_.inner == 0) return;
        if (lanes_.inner == 1) {
            parallel_ranges(context.threads, lanes_.outer, 1 + kSoftmaxGrain / n, [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) row(x + i * n, y + i * n);
            });
            return;
        }
        const int64_t tiles = (lanes_.inner + kSoftmaxColumns - 1) / kSoftmaxColumns;
        const int64_t cost = n * std::min(lanes_.inner, kSoftmaxColumns);
        parallel_ranges(context.threads, lanes_.outer * tiles, 1 + kSoftmaxGrain / cost, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const int64_t c = i % tiles * kSoftmaxColumns, at = i / tiles * n * lanes_.inner + c;
                columns(x + at, y + at, std::min(kSoftmaxColumns, lanes_.inner - c));
            }
        });
    }

  private:
    void row(const T* x, T* y) const {
        const int64_t n = lanes_.length;
        if constexpr (is_narrow<T>) {
            A* wide = static_cast<A*>(scratch(1, static_cast<size_t>(n) * sizeof(A)));
            widen(x, wide, n);
            softmax_row(kind_, wide, wide, n);
            narrow(wide, y, n);
        } else {
            softmax_row(kind_, x, y, n);
        }
    }
    void columns(const T* x, T* y, int64_t width) const {
        const int64_t n = lanes_.length, ld = lanes_.inner;
        if constexpr (is_narrow<T>) {
            A* wide = static_cast<A*>(scratch(1, static_cast<size_t>(n * width) * sizeof(A)));
            for (int64_t i = 0; i < n; ++i) widen(x + i * ld, wide + i * width, width);
            softmax_columns(kind_, wide, wide, n, width, width);
            for (int64_t i = 0; i < n; ++i) narrow(wide + i * width, y + i * ld, width);
        } else {
            softmax_columns(kind_, x, y, n, ld, width);
        }
    }
    SoftmaxKind kind_;
    Lanes lanes_;
};

class Softmax final : public Kernel {
  public:
    Softmax(const NodeSpec& spec, SoftmaxKind kind) : kind_(kind), axis_(spec.attrs.integer("axis", -1)) {
        if (!spec.has_input(0)) throw Unsupported("the first input is missing");
        dtype_ = spec.inputs[0].dtype;
        visit<FloatTypes>(dtype_, [](auto) {});
    }
    uint32_t inplace() const override { return 1; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        expect_dtype(in[0], dtype_, "input");
        out[0] = in[0].desc;
        const Lanes lanes(in[0].shape(), checked_axis(axis_, in[0].shape().rank));
        return visit<FloatTypes>(dtype_, [&](auto t) -> std::unique_ptr<Prepared> {
            return std::make_unique<RunSoftmax<decltype(t)>>(kind_, lanes);
        });
    }

  private:
    SoftmaxKind kind_;
    int64_t axis_;
    DType dtype_;
};

template <SoftmaxKind kind> std::unique_ptr<Kernel> make(const NodeSpec& spec) { return std::make_unique<Softmax>(spec, kind); }

}  // namespace

void register_softmax(Registry& r) {
    r.add("Softmax", make<SoftmaxKind::Softmax>);
    r.add("LogSoftmax", make<SoftmaxKind::LogSoftmax>);
    r.add("Hardmax", make<SoftmaxKind::Hardmax>);
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
