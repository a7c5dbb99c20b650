// Elementwise operators of one operand: elementary functions, activations, Neg, Abs, Sign, IsNaN, IsInf.
// https://onnx.ai/onnx/operators/
#include "kernels/elementwise.h"
#include "kernels/elementwise_math.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

// An operator on floats: FORMULA of `x`, of type X (vf or double), with attributes `p`.
#define OPWEAVE_FORMULA(NAME, FORMULA) \
    struct NAME { \
        template <class X> X operator()(X x, [[maybe_unused]] const Params& p) const { return FORMULA; } \
    };
#define OPWEAVE_C(CONSTANT) value<X>(CONSTANT)

OPWEAVE_FORMULA(Ceil, vceil(x))
OPWEAVE_FORMULA(Floor, vfloor(x))
OPWEAVE_FORMULA(Round, vround(x))
OPWEAVE_FORMULA(Sqrt, vsqrt(x))
OPWEAVE_FORMULA(Reciprocal, OPWEAVE_C(1) / x)
OPWEAVE_FORMULA(Exp, vexp(x))
OPWEAVE_FORMULA(Log, vlog(x))
OPWEAVE_FORMULA(Sin, vsin(x))
OPWEAVE_FORMULA(Cos, vcos(x))
OPWEAVE_FORMULA(Tan, vtan(x))
OPWEAVE_FORMULA(Asin, vasin(x))
OPWEAVE_FORMULA(Acos, vacos(x))
OPWEAVE_FORMULA(Atan, vatan(x))
OPWEAVE_FORMULA(Sinh, vsinh(x))
OPWEAVE_FORMULA(Cosh, vcosh(x))
OPWEAVE_FORMULA(Tanh, vtanh(x))
OPWEAVE_FORMULA(Asinh, vasinh(x))
OPWEAVE_FORMULA(Acosh, vacosh(x))
OPWEAVE_FORMULA(Atanh, vatanh(x))
OPWEAVE_FORMULA(Erf, verf(x))
OPWEAVE_FORMULA(Sigmoid, vsigmoid(x))
OPWEAVE_FORMULA(HardSigmoid, vclamp(x * OPWEAVE_C(p.a) + OPWEAVE_C(p.b), 0, 1))
OPWEAVE_FORMULA(HardSwish, x * vclamp(x * OPWEAVE_C(1.0 / 6) + OPWEAVE_C(0.5), 0, 1))
OPWEAVE_FORMULA(Swish, x * vsigmoid(x * OPWEAVE_C(p.a)))
OPWEAVE_FORMULA(Mish, vmish(x))
OPWEAVE_FORMULA(Gelu, vgelu(x))
OPWEAVE_FORMULA(GeluTanh, vgelu_tanh(x))
OPWEAVE_FORMULA(LeakyRelu, select(x < OPWEAVE_C(0), x * OPWEAVE_C(p.a), x))
OPWEAVE_FORMULA(Elu, select(x < OPWEAVE_C(0), vexpm1(x) * OPWEAVE_C(p.a), x))
OPWEAVE_FORMULA(Celu, select(x < OPWEAVE_C(0), vexpm1(x / OPWEAVE_C(p.a)) * OPWEAVE_C(p.a), x))
OPWEAVE_FORMULA(Selu, OPWEAVE_C(p.b) * select(x < OPWEAVE_C(0), vexpm1(x) * OPWEAVE_C(p.a), x))
OPWEAVE_FORMULA(ThresholdedRelu, select(x <= OPWEAVE_C(p.a), OPWEAVE_C(0), x))
OPWEAVE_FORMULA(Softplus, vsoftplus(x))
OPWEAVE_FORMULA(Softsign, x / (OPWEAVE_C(1) + vabs(x)))
#undef OPWEAVE_FORMULA
#undef OPWEAVE_C

// Operators on numbers of any type.
struct Abs {
    vf operator()(vf x, const Params&) const { return vabs(x); }
    double operator()(double x, const Params&) const { return std::fabs(x); }
    template <class T> T operator()(T x, const Params&) const {
        using U = std::make_unsigned_t<T>;  // the magnitude of the least integer is itself, as NumPy has it
        return static_cast<T>(x < T{0} ? static_cast<U>(U{0} - static_cast<U>(x)) : static_cast<U>(x));
    }
};
struct Neg {
    vf operator()(vf x, const Params&) const { return -x; }
    double operator()(double x, const Params&) const { return -x; }
    template <class T> T operator()(T x, const Params&) const {
        using U = std::make_unsigned_t<T>;
        return static_cast<T>(U{0} - static_cast<U>(x));
    }
};
struct Sign {
    vf operator()(vf x, const Params&) const { return select(x == x, select(x > 0.0f, splat(1.0f), select(x < 0.0f, splat(-1.0f), vf{})), x); }
    double operator()(double x, const Params&) const { return x > 0 ? 1 : x < 0 ? -1 : x != x ? x : 0; }
    template <class T> T operator()(T x, const Params&) const { return static_cast<T>((x > T{0}) - (x < T{0})); }
};
struct Relu {
    vf operator()(vf x, const Params&) const { return select(x < 0.0f, vf{}, x); }
    template <class T> T operator()(T x, const Params&) const { return x < T{0} ? T{0} : x; }
};
struct Shrink {
    vf operator()(vf x, const Params& p) const {
        const float bias = static_cast<float>(p.a), lambd = static_cast<float>(p.b);
        return select(x < -lambd, x + bias, select(x > lambd, x - bias, vf{}));
    }
    template <class T> double operator()(T stored, const Params& p) const {
        const double x = static_cast<double>(stored);
        return x < -p.b ? x + p.a : x > p.b ? x - p.a : 0;
    }
};

template <class Op, class List> BlockFn pick(DType t) {
    return visit<List>(t, [](auto x) -> BlockFn { return unary_block<Op, decltype(x)>; });
}
using Reals = Types<float, double>;
using Signed = Types<float, double, int8_t, int16_t, int32_t, int64_t>;
using All = Types<float, double, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t>;

template <class Op, class List = Reals> void add(Registry& r, const char* name, const char* a = nullptr, double a_default = 0,
                                                 const char* b = nullptr, double b_default = 0) {
    add_elementwise(r, name, 1, 1, [=](const NodeSpec& s) {
        DType t = dtype_of_input(s, 0);
        if (t == DType::Bool) throw Unsupported("no native kernel for bool");
        Params p{a ? s.attrs.real(a, a_default) : 0, b ? s.attrs.real(b, b_default) : 0};
        return plain_operation(t, pick<Op, List>(compute_type(t)), p);
    });
}

struct IsNan {
    template <class T> static bool test(T x, const Params&) { return x != x; }
};
struct IsInf {  // a, b: whether the positive and the negative infinity count
    template <class T> static bool test(T x, const Params& p) {
        constexpr T inf = std::numeric_limits<T>::infinity();
        return (x == inf && p.a != 0) || (x == -inf && p.b != 0);
    }
};
template <class Test, class T> void test_block(const void* const* in, void* out, int64_t n, const Params& p) {
    const T* x = static_cast<const T*>(in[0]);
    uint8_t* y = static_cast<uint8_t*>(out);
    const Params local = p;
    for (int64_t i = 0; i < n; ++i) y[i] = Test::test(x[i], local);
}
template <class Test> void add_test(Registry& r, const char* name) {
    add_elementwise(r, name, 1, 1, [](const NodeSpec& s) {
        DType t = dtype_of_input(s, 0);
        BlockFn fn = visit<Reals>(compute_type(t), [](auto x) -> BlockFn { return test_block<Test, decltype(x)>; });
        Params p{static_cast<double>(s.attrs.integer("detect_positive", 1)), static_cast<double>(s.attrs.integer("detect_negative", 1))};
        return test_operation(t, fn, p);
    });
}
Operation gelu(const NodeSpec& s) {
    DType t = dtype_of_input(s, 0), computed = compute_type(t);
    std::string how = s.attrs.text("approximate", "none");
    if (how != "none" && how != "tanh") throw BadOperand("approximate is '" + how + "', expected none or tanh");
    return plain_operation(t, how == "tanh" ? pick<GeluTanh, Reals>(computed) : pick<Gelu, Reals>(computed));
}

}  // namespace

void register_elementwise_unary(Registry& r) {
    add<Ceil>(r, "Ceil");
    add<Floor>(r, "Floor");
    add<Round>(r, "Round");
    add<Sqrt>(r, "Sqrt");
    add<Reciprocal>(r, "Reciprocal");
    add<Exp>(r, "Exp");
    add<Log>(r, "Log");
    add<Sin>(r, "Sin");
    add<Cos>(r, "Cos");
    add<Tan>(r, "Tan");
    add<Asin>(r, "Asin");
    add<Acos>(r, "Acos");
    add<Atan>(r, "Atan");
    add<Sinh>(r, "Sinh");
    add<Cosh>(r, "Cosh");
    add<Tanh>(r, "Tanh");
    add<Asinh>(r, "Asinh");
    add<Acosh>(r, "Acosh");
    add<Atanh>(r, "Atanh");
    add<Erf>(r, "Erf");
    add<Sigmoid>(r, "Sigmoid");
    add<HardSigmoid>(r, "HardSigmoid", "alpha", 0.2, "beta", 0.5);
    add<HardSwish>(r, "HardSwish");
    add<Swish>(r, "Swish", "alpha", 1);
    add<Mish>(r, "Mish");
    add_elementwise(r, "Gelu", 1, 1, gelu);
    add<LeakyRelu>(r, "LeakyRelu", "alpha", 0.01);
    add<Elu>(r, "Elu", "alpha", 1);
    add<Celu>(r, "Celu", "alpha", 1);
    add<Selu>(r, "Selu", "alpha", 1.67326319217681884765625, "gamma", 1.05070102214813232421875);
    add<ThresholdedRelu>(r, "ThresholdedRelu", "alpha", 1);
    add<Softplus>(r, "Softplus");
    add<Softsign>(r, "Softsign");
    add<Abs, All>(r, "Abs");
    add<Neg, Signed>(r, "Neg");
    add<Sign, All>(r, "Sign");
    add<Relu, Signed>(r, "Relu");
    add<Shrink, All>(r, "Shrink", "bias", 0, "lambd", 0.5);
    add_test<IsNan>(r, "IsNaN");
    add_test<IsInf>(r, "IsInf");
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
