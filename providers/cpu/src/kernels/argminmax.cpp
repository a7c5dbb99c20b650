// ArgMax, ArgMin (https://onnx.ai/onnx/operators/onnx__ArgMax.html). The first of equal elements, or the last; NaN wins,
// as in NumPy. A contiguous run is searched twice: for the extreme (vectorised), then for its place.
#include "kernels/dtypes.h"
#include "kernels/reduce.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

constexpr int64_t kArgGrain = 1 << 15;  // elements worth a thread

template <class Op, class T> class RunArg final : public Prepared {
    using A = wide_t<T>;

  public:
    RunArg(const Lanes& lanes, bool last) : lanes_(lanes), last_(last) {
        flops = static_cast<double>(lanes.outer * lanes.inner) * static_cast<double>(lanes.length);
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const T* x = in[0].as<T>();
        int64_t* y = out[0].as<int64_t>();
        const int64_t n = lanes_.length, inner = lanes_.inner;
        if (inner == 1) {
            parallel_ranges(context.threads, lanes_.outer, 1 + kArgGrain / n, [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) y[i] = place(x + i * n, n);
            });
            return;
        }
        const int64_t tiles = (inner + kTile - 1) / kTile;
        parallel_ranges(context.threads, lanes_.outer * tiles, 1 + kArgGrain / (n * std::min(inner, kTile)), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const int64_t o = i / tiles, c = i % tiles * kTile;
                columns(x + o * n * inner + c, y + o * inner + c, std::min(kTile, inner - c));
            }
        });
    }

  private:
    // Whether `a` replaces `b` as the extreme, when it comes later.
    bool wins(A a, A b) const {
        const bool real = b == b, joined = Op::join(b, a) == a;
        return a != a ? last_ | real : real & joined & (last_ | (a != b));
    }
    int64_t place(const T* x, int64_t n) const {
        const A best = Reducer<Op, T>::run(x, n, A{});
        const auto found = [&](int64_t i) { return best == best ? widen(x[i]) == best : widen(x[i]) != widen(x[i]); };
        int64_t i = last_ ? n - 1 : 0;
        while (!found(i)) i += last_ ? -1 : 1;
        return i;
    }
    void columns(const T* x, int64_t* y, int64_t width) const {
        A best[kTile], row[kTile];
        widen(x, best, width);
        std::fill(y, y + width, 0);
        for (int64_t i = 1; i < lanes_.length; ++i) {
            widen(x + i * lanes_.inner, row, width);
            for (int64_t c = 0; c < width; ++c) {
                const bool wins = this->wins(row[c], best[c]);
                best[c] = wins ? row[c] : best[c];
                y[c] = wins ? i : y[c];
            }
        }
    }
    Lanes lanes_;
    bool last_;
};

template <class Op> class Arg final : public Kernel {
  public:
    explicit Arg(const NodeSpec& spec)
        : axis_(spec.attrs.integer("axis", 0)), keep_(spec.attrs.integer("keepdims", 1) != 0),
          last_(spec.attrs.integer("select_last_index", 0) != 0) {
        if (!spec.has_input(0)) throw Unsupported("the first input is missing");
        visit<NumberTypes>(spec.inputs[0].dtype, [](auto) {});
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape& x = in[0].shape();
        const int axis = checked_axis(axis_, x.rank);
        Shape kept;
        for (int i = 0; i < x.rank; ++i)
            if (i != axis || keep_) kept.push_back(i == axis ? 1 : x[i]);
        out[0] = {DType::I64, kept};
        Lanes lanes(x, axis);
        if (lanes.length == 0 && kept.count() > 0) throw BadOperand("axis " + std::to_string(axis) + " of " + x.str() + " is empty");
        if (kept.count() == 0) lanes.outer = 0, lanes.inner = lanes.length = 1;
        return visit<NumberTypes>(in[0].dtype(), [&](auto t) -> std::unique_ptr<Prepared> {
            return std::make_unique<RunArg<Op, decltype(t)>>(lanes, last_);
        });
    }

  private:
    int64_t axis_;
    bool keep_, last_;
};

}  // namespace

void register_argminmax(Registry& r) {
    r.add("ArgMax", [](const NodeSpec& s) { return std::make_unique<Arg<MaxOp>>(s); });
    r.add("ArgMin", [](const NodeSpec& s) { return std::make_unique<Arg<MinOp>>(s); });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
