// Comparisons, and logic on booleans and bits. https://onnx.ai/onnx/operators/
#include "kernels/elementwise.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

using All = Types<float, double, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t>;
using Words = Types<uint8_t, uint16_t, uint32_t, uint64_t>;

struct Equal { template <class T> static bool test(T a, T b) { return a == b; } };
struct Greater { template <class T> static bool test(T a, T b) { return a > b; } };
struct Less { template <class T> static bool test(T a, T b) { return a < b; } };
struct GreaterOrEqual { template <class T> static bool test(T a, T b) { return a >= b; } };
struct LessOrEqual { template <class T> static bool test(T a, T b) { return a <= b; } };

template <class Test, class T> void compare_block(const void* const* in, void* out, int64_t n, const Params&) {
    const T *a = static_cast<const T*>(in[0]), *b = static_cast<const T*>(in[1]);
    uint8_t* y = static_cast<uint8_t*>(out);
    for (int64_t i = 0; i < n; ++i) y[i] = Test::test(a[i], b[i]);
}
template <class Test> void add_comparison(Registry& r, const char* name) {
    add_elementwise(r, name, 2, 2, [](const NodeSpec& s) {
        DType t = common_type(s);
        return test_operation(t, visit<All>(compute_type(t), [](auto x) -> BlockFn { return compare_block<Test, decltype(x)>; }));
    });
}

struct And { template <class T> T operator()(T a, T b) const { return static_cast<T>(a & b); } };
struct Or { template <class T> T operator()(T a, T b) const { return static_cast<T>(a | b); } };
struct Xor { template <class T> T operator()(T a, T b) const { return static_cast<T>(a ^ b); } };
struct Complement { template <class T> T operator()(T x, const Params&) const { return static_cast<T>(~x); } };
struct Not { uint8_t operator()(uint8_t x, const Params&) const { return x == 0; } };

// The unsigned type of a type's width; refuses what is no integer.
DType word_of(DType t) {
    switch (t) {
        case DType::I8: case DType::U8: return DType::U8;
        case DType::I16: case DType::U16: return DType::U16;
        case DType::I32: case DType::U32: return DType::U32;
        case DType::I64: case DType::U64: return DType::U64;
        default: throw Unsupported(std::string("no bits of ") + name_of(t));
    }
}
template <class Op> void add_binary(Registry& r, const char* logical, const char* bitwise) {
    add_elementwise(r, logical, 2, 2, [](const NodeSpec& s) {
        if (common_type(s) != DType::Bool) throw BadOperand("operands must be bool");
        return plain_operation(DType::Bool, binary_block<Op, uint8_t>);
    });
    add_elementwise(r, bitwise, 2, 2, [](const NodeSpec& s) {
        DType t = common_type(s);
        return plain_operation(t, visit<Words>(word_of(t), [](auto x) -> BlockFn { return binary_block<Op, decltype(x)>; }));
    });
}

}  // namespace

void register_elementwise_logic(Registry& r) {
    add_comparison<Equal>(r, "Equal");
    add_comparison<Greater>(r, "Greater");
    add_comparison<Less>(r, "Less");
    add_comparison<GreaterOrEqual>(r, "GreaterOrEqual");
    add_comparison<LessOrEqual>(r, "LessOrEqual");
    add_binary<And>(r, "And", "BitwiseAnd");
    add_binary<Or>(r, "Or", "BitwiseOr");
    add_binary<Xor>(r, "Xor", "BitwiseXor");
    add_elementwise(r, "Not", 1, 1, [](const NodeSpec& s) {
        if (dtype_of_input(s, 0) != DType::Bool) throw BadOperand("the operand must be bool");
        return plain_operation(DType::Bool, unary_block<Not, uint8_t>);
    });
    add_elementwise(r, "BitwiseNot", 1, 1, [](const NodeSpec& s) {
        DType t = dtype_of_input(s, 0);
        return plain_operation(t, visit<Words>(word_of(t), [](auto x) -> BlockFn { return unary_block<Complement, decltype(x)>; }));
    });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
