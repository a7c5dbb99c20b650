// ReduceSum, Mean, Max, Min, Prod, L1, L2, LogSum, LogSumExp, SumSquare (https://onnx.ai/onnx/operators/): the operators
// over the engine of reduce.h. float16 and bfloat16 accumulate in float32; integers wrap, as NumPy's do.
#include "kernels/reduce.h"

#include <cmath>

#include "kernels/dtypes.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

struct MeanOp : SumOp {
    template <class T, class A> static wide_t<T> finish(A a, int64_t n) {
        if constexpr (is_real<T>) return a / static_cast<A>(n);
        else return n ? static_cast<T>(static_cast<double>(static_cast<T>(a)) / static_cast<double>(n)) : T{};
    }
};
struct ProdOp : SumOp {
    template <class A> static A identity() { return 1; }
    template <class X> static X join(X a, X b) { return a * b; }
};
struct L2Op : SumSquareOp {
    template <class T, class A> static wide_t<T> finish(A a, int64_t) {
        if constexpr (is_real<T>) return std::sqrt(a);
        else return static_cast<T>(std::sqrt(static_cast<double>(static_cast<T>(a))));
    }
};
struct LogSumOp : SumOp {
    template <class T, class A> static wide_t<T> finish(A a, int64_t) { return std::log(a); }
};
struct ExpSumOp : SumOp {
    static float map(float x, float shift) { return std::exp(x - shift); }
    static double map(double x, double shift) { return std::exp(x - shift); }
    template <class X> static X map(X x, X shift) {
        X y{};
        for (size_t i = 0; i < sizeof x / sizeof x[0]; ++i) y[i] = std::exp(x[i] - shift[i]);
        return y;
    }
};

template <class Op, class T> class RunReduce final : public Prepared {
    using R = Reducer<Op, T>;
    using A = typename R::A;
    static constexpr bool kInOutput = !is_narrow<T>;  // the accumulators fit the output itself

  public:
    explicit RunReduce(const ReducePlan& plan) : plan_(plan) {
        workspace = sizeof(A) * (plan.partials() + (kInOutput ? 0 : static_cast<size_t>(plan.outputs)));
        flops = static_cast<double>(plan.reduced) * static_cast<double>(plan.outputs);
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        A* partials = static_cast<A*>(context.workspace);
        A* acc = kInOutput ? static_cast<A*>(out[0].data) : partials + plan_.partials();
        R::reduce(plan_, context.threads, in[0].as<T>(), acc, nullptr, partials);
        T* y = out[0].as<T>();
        for (int64_t i = 0; i < plan_.outputs; ++i) y[i] = narrow<T>(Op::template finish<T>(acc[i], plan_.reduced));
        if (out[0].dtype() == DType::Bool)  // the identity of Min over bytes is no bool
            for (int64_t i = 0; i < plan_.outputs; ++i) out[0].as<bool>()[i] = out[0].as<uint8_t>()[i] != 0;
    }

  private:
    ReducePlan plan_;
};

// log(sum(exp(x - max))) + max, with max taken as 0 where it is infinite.
template <class T> class RunLogSumExp final : public Prepared {
    using A = wide_t<T>;

  public:
    explicit RunLogSumExp(const ReducePlan& plan) : plan_(plan) {
        workspace = sizeof(A) * (plan.partials() + 2 * static_cast<size_t>(plan.outputs));
        flops = 10.0 * static_cast<double>(plan.reduced) * static_cast<double>(plan.outputs);
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        A* partials = static_cast<A*>(context.workspace);
        A* top = partials + plan_.partials();
        A* acc = top + plan_.outputs;
        Reducer<MaxOp, T>::reduce(plan_, context.threads, in[0].as<T>(), top, nullptr, partials);
        for (int64_t i = 0; i < plan_.outputs; ++i) top[i] = std::isinf(top[i]) ? 0 : top[i];
        Reducer<ExpSumOp, T>::reduce(plan_, context.threads, in[0].as<T>(), acc, top, partials);
        for (int64_t i = 0; i < plan_.outputs; ++i) out[0].as<T>()[i] = narrow<T>(std::log(acc[i]) + top[i]);
    }

  private:
    ReducePlan plan_;
};

using Make = std::unique_ptr<Prepared> (*)(const ReducePlan&);
template <class P> std::unique_ptr<Prepared> make(const ReducePlan& plan) { return std::make_unique<P>(plan); }

class Reduce final : public Kernel {
  public:
    Reduce(const NodeSpec& spec, Make make)
        : make_(make), dtype_(spec.inputs[0].dtype), keep_(spec.attrs.integer("keepdims", 1) != 0),
          noop_(spec.attrs.integer("noop_with_empty_axes", 0) != 0), has_axes_(spec.has_input(1)) {}
    uint32_t value_inputs() const override { return 1u << 1; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        expect_dtype(in[0], dtype_, "data");
        const Shape& s = in[0].shape();
        AxisSet cut = axes(in, s.rank);
        Shape kept;
        for (int i = 0; i < s.rank; ++i)
            if (!cut.has[i] || keep_) kept.push_back(cut.has[i] ? 1 : s[i]);
        out[0] = {dtype_, kept};
        in[0].count();
        out[0].count();
        return make_(ReducePlan(s, cut));
    }

  private:
    AxisSet axes(const Tensor* in, int rank) const {
        AxisSet cut;
        int64_t named = 0;
        if (has_axes_ && in[1].present()) {
            expect_dtype(in[1], DType::I64, "axes");
            if (in[1].shape().rank > 1) throw BadOperand("axes must be a list, its shape is " + in[1].shape().str());
            named = in[1].count();
            for (int64_t i = 0; i < named; ++i) cut.add(in[1].as<int64_t>()[i], rank);
        }
        if (named == 0 && !noop_) std::fill(cut.has, cut.has + rank, true);
        return cut;
    }
    Make make_;
    DType dtype_;
    bool keep_, noop_, has_axes_;
};

template <class List, template <class> class P> Factory factory() {
    return [](const NodeSpec& spec) -> std::unique_ptr<Kernel> {
        if (!spec.has_input(0)) throw Unsupported("the first input is missing");
        Make chosen = visit<List>(spec.inputs[0].dtype, [](auto t) -> Make { return make<P<decltype(t)>>; });
        return std::make_unique<Reduce>(spec, chosen);
    };
}
template <class Op> struct With {
    template <class T> using run = RunReduce<Op, T>;
};
template <class T> using RunL1 =
    RunReduce<AbsSumOp<is_real<T> ? Sign::Real : std::is_signed_v<T> ? Sign::Signed : Sign::Unsigned>, T>;
using OrderedTypes = Types<float, double, f16, bf16, int32_t, int64_t, uint32_t, uint64_t, int8_t, uint8_t>;

}  // namespace

void register_reduce(Registry& r) {
    r.add("ReduceSum", factory<WideTypes, With<SumOp>::run>());
    r.add("ReduceMean", factory<WideTypes, With<MeanOp>::run>());
    r.add("ReduceProd", factory<WideTypes, With<ProdOp>::run>());
    r.add("ReduceSumSquare", factory<WideTypes, With<SumSquareOp>::run>());
    r.add("ReduceL1", factory<WideTypes, RunL1>());
    r.add("ReduceL2", factory<WideTypes, With<L2Op>::run>());
    r.add("ReduceMax", factory<OrderedTypes, With<MaxOp>::run>());
    r.add("ReduceMin", factory<OrderedTypes, With<MinOp>::run>());
    r.add("ReduceLogSum", factory<FloatTypes, With<LogSumOp>::run>());
    r.add("ReduceLogSumExp", factory<FloatTypes, RunLogSumExp>());
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
