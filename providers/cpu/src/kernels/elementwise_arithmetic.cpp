// Elementwise arithmetic of two and more operands: Add, Sub, Mul, Div, Mod, Pow, PRelu, BitShift, Max, Min, Sum, Mean.
// Integers wrap around, as NumPy's do; division by zero gives 0 for them. https://onnx.ai/onnx/operators/
#include "kernels/elementwise.h"
#include "kernels/elementwise_math.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

using All = Types<float, double, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t>;
using Bits = Types<float, double, uint8_t, uint16_t, uint32_t, uint64_t>;
using Integers = Types<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t>;

// Where signs do not matter: the unsigned type of the same width, in which overflow is defined.
DType as_unsigned(DType t) {
    switch (t) {
        case DType::I8: return DType::U8;
        case DType::I16: return DType::U16;
        case DType::I32: return DType::U32;
        case DType::I64: return DType::U64;
        default: return t;
    }
}

struct Add { template <class X> X operator()(X a, X b) const { return static_cast<X>(a + b); } };
struct Sub { template <class X> X operator()(X a, X b) const { return static_cast<X>(a - b); } };
struct Mul {
    template <class X> X operator()(X a, X b) const { return a * b; }
    uint8_t operator()(uint8_t a, uint8_t b) const { return static_cast<uint8_t>(unsigned{a} * b); }
    uint16_t operator()(uint16_t a, uint16_t b) const { return static_cast<uint16_t>(unsigned{a} * b); }
};
template <class T> constexpr bool overflows(T a, T b) {  // also where the processor would trap
    if constexpr (std::is_signed_v<T>) return b == T{-1} && a == std::numeric_limits<T>::lowest();
    else return false;
}
struct Div {
    vf operator()(vf a, vf b) const { return a / b; }
    double operator()(double a, double b) const { return a / b; }
    template <class T> T operator()(T a, T b) const { return b == T{0} ? T{0} : overflows(a, b) ? a : static_cast<T>(a / b); }
};
// The sign of the divisor (Python).
struct Mod {
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>> T operator()(T a, T b) const {
        if constexpr (std::is_floating_point_v<T>) {
            T r = std::fmod(a, b);
            return r == 0 ? std::copysign(r, b) : (r < 0) != (b < 0) && r == r ? r + b : r;
        } else {
            if (b == T{0} || overflows(a, b)) return T{0};
            T r = static_cast<T>(a % b);
            if constexpr (std::is_signed_v<T>) return r != 0 && (r < 0) != (b < 0) ? static_cast<T>(r + b) : r;
            else return r;
        }
    }
};
// The sign of the dividend (C).
struct Fmod {
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>> T operator()(T a, T b) const {
        if constexpr (std::is_floating_point_v<T>) return std::fmod(a, b);
        else return b == T{0} || overflows(a, b) ? T{0} : static_cast<T>(a % b);
    }
};
struct Max {
    vf operator()(vf a, vf b) const { return select((a > b) | (a != a), a, b); }
    template <class T> T operator()(T a, T b) const { return a > b || a != a ? a : b; }
};
struct Min {
    vf operator()(vf a, vf b) const { return select((a < b) | (a != a), a, b); }
    template <class T> T operator()(T a, T b) const { return a < b || a != a ? a : b; }
};
struct PRelu {
    vf operator()(vf x, vf slope) const { return select(x > 0.0f, x, x * slope); }
    double operator()(double x, double slope) const { return x > 0 ? x : x * slope; }
    template <class T> T operator()(T x, T slope) const {
        using U = std::make_unsigned_t<T>;
        return x > T{0} ? x : static_cast<T>(static_cast<U>(x) * static_cast<U>(slope));
    }
};
// A negative count, or one of the width or more, shifts every bit out.
struct ShiftLeft {
    template <class T> T operator()(T a, T b) const {
        using U = std::make_unsigned_t<T>;
        return static_cast<U>(b) < 8 * sizeof(T) ? static_cast<T>(static_cast<uint64_t>(static_cast<U>(a)) << static_cast<U>(b)) : T{0};
    }
};
struct ShiftRight {
    template <class T> T operator()(T a, T b) const {
        using U = std::make_unsigned_t<T>;
        return static_cast<U>(b) < 8 * sizeof(T) ? static_cast<T>(a >> static_cast<U>(b)) : static_cast<T>(a < T{0} ? -1 : 0);
    }
};
struct Divide {  // finish of Mean
    template <class X> X operator()(X sum, const Params& p) const { return sum / value<X>(p.a); }
};

template <class Op, class List> BlockFn pick(DType t) {
    if (t == DType::Bool) throw Unsupported("no native kernel for bool");
    return visit<List>(t, [](auto x) -> BlockFn { return binary_block<Op, decltype(x)>; });
}
Operation operation(DType stored, BlockFn (*choose)(DType), bool wraps = false) {
    DType computed = compute_type(stored);
    return plain_operation(stored, choose(wraps ? as_unsigned(computed) : computed));
}
void add_wrapping(Registry& r, const char* name, BlockFn (*choose)(DType)) {
    add_elementwise(r, name, 2, 2, [=](const NodeSpec& s) { return operation(common_type(s), choose, true); });
}

Operation modulo(const NodeSpec& s) {
    return operation(common_type(s), s.attrs.integer("fmod", 0) ? pick<Fmod, All> : pick<Mod, All>);
}
Operation bit_shift(const NodeSpec& s) {
    std::string direction = s.attrs.text("direction", "");
    if (direction != "LEFT" && direction != "RIGHT") throw BadOperand("direction is '" + direction + "', expected LEFT or RIGHT");
    return operation(common_type(s), direction == "LEFT" ? pick<ShiftLeft, Integers> : pick<ShiftRight, Integers>);
}

// Powers. The exponents of a block are often all the same: a constant of the model.
bool all_equal(const float* y, int64_t n) { return n < 2 || std::memcmp(y, y + 1, static_cast<size_t>(n - 1) * sizeof *y) == 0; }
void pow_f32(const void* const* in, void* out, int64_t n, const Params&) {
    const float *x = static_cast<const float*>(in[0]), *y = static_cast<const float*>(in[1]);
    float* z = static_cast<float*>(out);
    const float power = n > 0 ? y[0] : 0.0f;
    const bool special = power == 1.0f || power == 2.0f || power == 3.0f || power == -1.0f || power == 0.5f;
    if (!special || !all_equal(y, n)) return map_vectors(x, y, z, n, [](vf a, vf b) { return vpow(a, b); });
    if (power == 1.0f) return map_vectors(x, z, n, [](vf a) { return a; });
    if (power == 2.0f) return map_vectors(x, z, n, [](vf a) { return a * a; });
    if (power == 3.0f) return map_vectors(x, z, n, [](vf a) { return a * a * a; });
    if (power == -1.0f) return map_vectors(x, z, n, [](vf a) { return 1.0f / a; });
    map_vectors(x, z, n, [](vf a) { return select(a == -kInf, splat(kInf), vsqrt(a + 0.0f)); });
}
struct PowReal { double operator()(double x, double y) const { return std::pow(x, y); } };
// Of a negative exponent the whole part remains: 1 for 1, 1 or -1 for -1, otherwise 0.
template <class T> T integer_power(T base, int64_t exponent) {
    using U = std::make_unsigned_t<T>;
    if (exponent < 0) {
        if (base == T{1} || base == T{-1}) return exponent % 2 ? base : T{1};
        return 0;
    }
    U result = 1, square = static_cast<U>(base);
    for (auto e = static_cast<uint64_t>(exponent); e; e >>= 1) {
        if (e & 1) result *= square;
        square *= square;
    }
    return static_cast<T>(result);
}
template <class T> void pow_integer(const void* const* in, void* out, int64_t n, const Params&) {
    const T* x = static_cast<const T*>(in[0]);
    const int64_t* y = static_cast<const int64_t*>(in[1]);
    T* z = static_cast<T*>(out);
    for (int64_t i = 0; i < n; ++i) z[i] = integer_power(x[i], y[i]);
}
bool is_float(DType t) {
    return t == DType::F32 || t == DType::F64 || t == DType::F16 || t == DType::BF16;
}
// The result has the type of the base. Floats: in float64 if either is that, or an integer is raised to a real power.
Operation power(const NodeSpec& s) {
    const DType base = dtype_of_input(s, 0), exponent = dtype_of_input(s, 1);
    if (!is_float(base) && !is_float(exponent)) {
        if (base == DType::I32) return {pow_integer<int32_t>, {base, DType::I64}, base, base, {}};
        if (base == DType::I64) return {pow_integer<int64_t>, {base, DType::I64}, base, base, {}};
        throw Unsupported(std::string("no native power of ") + name_of(base));
    }
    const bool real = !is_float(base) || base == DType::F64 || exponent == DType::F64;
    const DType t = real ? DType::F64 : DType::F32;
    return {real ? binary_block<PowReal, double> : pow_f32, {t, t}, t, base, {}};
}

// Where the slope does not broadcast, a list of as many slopes as exactly one axis has elements goes along that axis.
class PReluKernel final : public Kernel {
  public:
    PReluKernel(const NodeSpec& s, const Operation& op) : inner_(make_elementwise(s, op, 2)) {}
    uint32_t inplace() const override { return 1; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        Tensor operands[2] = {in[0], in[1]};
        operands[1].desc.shape = slope_shape(in[0].shape(), in[1].shape());
        auto prepared = inner_->prepare(operands, out);
        if (out[0].shape != in[0].shape()) throw BadOperand("slope of shape " + in[1].shape().str() + " does not broadcast to " + in[0].shape().str());
        return prepared;
    }

  private:
    static Shape slope_shape(const Shape& x, const Shape& slope) {
        if (slope.rank != 1 || x.rank == 0 || slope[0] == 1 || slope[0] == x.back()) return slope;
        Shape along;
        int matches = 0;
        for (int i = 0; i < x.rank; ++i) {
            matches += x[i] == slope[0];
            along.push_back(x[i] == slope[0] ? x[i] : 1);
        }
        return matches == 1 ? along : slope;
    }
    std::unique_ptr<Kernel> inner_;
};

template <class Op> BlockFn fold_floats(DType t) { return pick<Op, Types<float, double>>(t); }
BlockFn finish_mean(DType t) {
    return visit<Types<float, double>>(t, [](auto x) -> BlockFn { return unary_block<Divide, decltype(x)>; });
}

}  // namespace

void register_elementwise_arithmetic(Registry& r) {
    add_wrapping(r, "Add", pick<Add, Bits>);
    add_wrapping(r, "Sub", pick<Sub, Bits>);
    add_wrapping(r, "Mul", pick<Mul, Bits>);
    add_elementwise(r, "Div", 2, 2, [](const NodeSpec& s) { return operation(common_type(s), pick<Div, All>); });
    add_elementwise(r, "Mod", 2, 2, modulo);
    add_elementwise(r, "Pow", 2, 2, power);
    add_elementwise(r, "BitShift", 2, 2, bit_shift);
    add_elementwise(r, "PRelu", 2, 2, [](const NodeSpec& s) { return operation(common_type(s), pick<PRelu, All>); });
    r.add("PRelu", [](const NodeSpec& s) { return std::make_unique<PReluKernel>(s, operation(common_type(s), pick<PRelu, All>)); });
    add_variadic(r, "Max", pick<Max, All>);
    add_variadic(r, "Min", pick<Min, All>);
    add_variadic(r, "Sum", fold_floats<Add>);
    add_variadic(r, "Mean", fold_floats<Add>, finish_mean);
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
