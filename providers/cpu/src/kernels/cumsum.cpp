// CumSum, CumProd (https://onnx.ai/onnx/operators/onnx__CumSum.html). f16 and bf16 accumulate in f32; integers wrap.
#include <algorithm>

#include "kernels/dtypes.h"
#include "kernels/reduce.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

struct ScanSpec {
    bool product = false, exclusive = false, reverse = false;
};

template <class T> class RunScan final : public Prepared {
    using A = wrapping_t<T>;

  public:
    RunScan(const ScanSpec& spec, const Lanes& lanes) : spec_(spec), lanes_(lanes) {
        flops = static_cast<double>(lanes.outer * lanes.inner) * static_cast<double>(lanes.length);
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const int64_t tiles = (lanes_.inner + kTile - 1) / kTile;
        const int64_t cost = std::max<int64_t>(1, lanes_.length * std::min(lanes_.inner, kTile));
        parallel_ranges(context.threads, lanes_.outer * tiles, 1 + (1 << 14) / cost, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const int64_t c = i % tiles * kTile, at = i / tiles * lanes_.length * lanes_.inner + c;
                const T *x = in[0].as<T>() + at;
                if (lanes_.inner == 1) run_of(x, out[0].as<T>() + at);
                else tile(x, out[0].as<T>() + at, std::min(kTile, lanes_.inner - c));
            }
        });
    }

  private:
    A join(A a, A b) const { return spec_.product ? a * b : a + b; }
    A first() const { return spec_.product ? 1 : 0; }
    void run_of(const T* x, T* y) const {
        A total = first();
        const int64_t n = lanes_.length, step = spec_.reverse ? -1 : 1;
        for (int64_t j = 0, i = spec_.reverse ? n - 1 : 0; j < n; ++j, i += step) {
            const A before = total;
            total = join(total, static_cast<A>(widen(x[i])));
            y[i] = narrow<T>(static_cast<wide_t<T>>(spec_.exclusive ? before : total));
        }
    }
    void tile(const T* x, T* y, int64_t width) const {
        A total[kTile];
        wide_t<T> row[kTile];
        std::fill(total, total + width, first());
        for (int64_t j = 0; j < lanes_.length; ++j) {
            const int64_t at = (spec_.reverse ? lanes_.length - 1 - j : j) * lanes_.inner;
            widen(x + at, row, width);
            for (int64_t c = 0; c < width; ++c) {
                const A before = total[c];
                total[c] = join(before, static_cast<A>(row[c]));
                row[c] = static_cast<wide_t<T>>(spec_.exclusive ? before : total[c]);
            }
            narrow(row, y + at, width);
        }
    }
    ScanSpec spec_;
    Lanes lanes_;
};

class Scan final : public Kernel {
  public:
    Scan(const NodeSpec& spec, bool product) {
        if (!spec.has_input(0) || !spec.has_input(1)) throw Unsupported("an input is missing");
        visit<WideTypes>(spec.inputs[0].dtype, [](auto) {});
        spec_.product = product;
        spec_.exclusive = spec.attrs.integer("exclusive", 0) != 0;
        spec_.reverse = spec.attrs.integer("reverse", 0) != 0;
    }
    uint32_t value_inputs() const override { return 2; }
    uint32_t inplace() const override { return 1; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Lanes lanes(in[0].shape(), checked_axis(scalar_int(in[1], "axis"), in[0].shape().rank));
        out[0] = in[0].desc;
        return visit<WideTypes>(in[0].dtype(), [&](auto t) -> std::unique_ptr<Prepared> {
            return std::make_unique<RunScan<decltype(t)>>(spec_, lanes);
        });
    }

  private:
    ScanSpec spec_;
};

}  // namespace

void register_cumsum(Registry& r) {
    r.add("CumSum", [](const NodeSpec& s) { return std::make_unique<Scan>(s, false); });
    r.add("CumProd", [](const NodeSpec& s) { return std::make_unique<Scan>(s, true); });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
