// Cast, CastLike and BitCast, and the conversions behind them. Types the processor does not compute in pass through
// float32 (narrow floats) or int32 (integers under a byte); float64 is first rounded to odd there, so that the second
// rounding is the only one that counts.
#include "kernels/cast.h"

#include <array>
#include <cstring>

#include "kernels/broadcast.h"
#include "kernels/dtypes.h"
#include "kernels/minifloat.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

using Step = Converter::Step;
using PlainTypes = Types<float, double, int32_t, int64_t, uint32_t, uint64_t, int8_t, uint8_t, int16_t, uint16_t>;

bool is_plain(DType d) {
    switch (d) {
        case DType::F32: case DType::F64: case DType::I8: case DType::U8: case DType::I16: case DType::U16: case DType::I32:
        case DType::U32: case DType::I64: case DType::U64: case DType::Bool: return true;
        default: return false;
    }
}

// Out of range, a float becomes what the processor makes of it by way of the next wider signed type.
template <class B, class A> B convert(A x) {
    if constexpr (std::is_floating_point_v<A> && std::is_integral_v<B> && sizeof(B) < 4) return static_cast<B>(static_cast<int32_t>(x));
    else if constexpr (std::is_floating_point_v<A> && std::is_same_v<B, uint32_t>) return static_cast<B>(static_cast<int64_t>(x));
    else if constexpr (std::is_floating_point_v<A> && std::is_same_v<B, uint64_t>)
        return x < A{0} ? static_cast<B>(static_cast<int64_t>(x)) : static_cast<B>(x);
    else return static_cast<B>(x);
}
template <class A, class B> void plain(const void* from, void* to, int64_t n, CastRules) {
    const A* x = static_cast<const A*>(from);
    B* y = static_cast<B*>(to);
    for (int64_t i = 0; i < n; ++i) y[i] = convert<B>(x[i]);
}
template <class A> void to_bool(const void* from, void* to, int64_t n, CastRules) {
    const A* x = static_cast<const A*>(from);
    uint8_t* y = static_cast<uint8_t*>(to);
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] != A{0};
}
void from_bool(const void* from, void* to, int64_t n, CastRules rules) { to_bool<uint8_t>(from, to, n, rules); }

void to_odd(const void* from, void* to, int64_t n, CastRules) {
    const double* x = static_cast<const double*>(from);
    uint32_t* y = static_cast<uint32_t*>(to);
    for (int64_t i = 0; i < n; ++i) {
        float f = static_cast<float>(x[i]);
        uint32_t bits;
        std::memcpy(&bits, &f, 4);
        double back = f;
        if (back != x[i] && x[i] == x[i]) {
            if (std::fabs(back) > std::fabs(x[i])) --bits;  // towards zero, then mark as inexact
            bits |= 1;
        }
        y[i] = bits;
    }
}

template <class T> void widen_step(const void* from, void* to, int64_t n, CastRules) {
    widen(static_cast<const T*>(from), static_cast<float*>(to), n);
}
template <class T> void narrow_step(const void* from, void* to, int64_t n, CastRules) {
    narrow(static_cast<const float*>(from), static_cast<T*>(to), n);
}
template <class Format> void decode_step(const void* from, void* to, int64_t n, CastRules) {
    static const std::array<float, 256> table = [] {
        std::array<float, 256> t;
        for (int i = 0; i < 256; ++i) t[static_cast<size_t>(i)] = Format::decode(static_cast<uint8_t>(i));
        return t;
    }();
    const uint8_t* x = static_cast<const uint8_t*>(from);
    float* y = static_cast<float*>(to);
    for (int64_t i = 0; i < n; ++i) y[i] = table[x[i]];
}
template <class Format> void encode_step(const void* from, void* to, int64_t n, CastRules rules) {
    const float* x = static_cast<const float*>(from);
    uint8_t* y = static_cast<uint8_t*>(to);
    for (int64_t i = 0; i < n; ++i) {
        if constexpr (std::is_same_v<Format, F8E8M0>) y[i] = Format::encode(x[i], rules);
        else y[i] = Format::encode(x[i], rules.saturate);
    }
}
template <int Bits, bool Signed> int32_t low_bits(uint32_t x) {
    x <<= 32 - Bits;
    return Signed ? static_cast<int32_t>(x) >> (32 - Bits) : static_cast<int32_t>(x >> (32 - Bits));
}
template <int Bits, bool Signed> void unpack_step(const void* from, void* to, int64_t n, CastRules) {
    const uint8_t* x = static_cast<const uint8_t*>(from);
    int32_t* y = static_cast<int32_t*>(to);
    for (int64_t i = 0; i < n; ++i) y[i] = low_bits<Bits, Signed>(x[i]);
}
template <int Bits, bool Signed> void pack_step(const void* from, void* to, int64_t n, CastRules) {
    const uint32_t* x = static_cast<const uint32_t*>(from);
    uint8_t* y = static_cast<uint8_t*>(to);
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<uint8_t>(low_bits<Bits, Signed>(x[i]));
}

// ONNX leaves open what a float out of range becomes; 0, as for NaN, is what ml_dtypes gives since 0.7.
template <class A, int Bits, bool Signed> void whole_step(const void* from, void* to, int64_t n, CastRules) {
    constexpr A low = Signed ? -(1 << (Bits - 1)) : 0, high = Signed ? (1 << (Bits - 1)) - 1 : (1 << Bits) - 1;
    const A* x = static_cast<const A*>(from);
    int32_t* y = static_cast<int32_t*>(to);
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] > low - 1 && x[i] < high + 1 ? static_cast<int32_t>(x[i]) : 0;
}

// How a type the processor does not compute in is reached: through `hub`, and that from floats in a way of its own.
struct Bridge { DType hub; Step in, out, from_f32 = nullptr, from_f64 = nullptr; };
template <class T> constexpr Bridge narrow_bridge() { return {DType::F32, widen_step<T>, narrow_step<T>}; }
template <class F> constexpr Bridge mini_bridge() { return {DType::F32, decode_step<F>, encode_step<F>}; }
template <int Bits, bool Signed> constexpr Bridge int_bridge() {
    return {DType::I32, unpack_step<Bits, Signed>, pack_step<Bits, Signed>, whole_step<float, Bits, Signed>, whole_step<double, Bits, Signed>};
}
Bridge bridge(DType d) {
    switch (d) {
        case DType::F16: return narrow_bridge<f16>();
        case DType::BF16: return narrow_bridge<bf16>();
        case DType::F8E4M3FN: return mini_bridge<F8E4M3FN>();
        case DType::F8E4M3FNUZ: return mini_bridge<F8E4M3FNUZ>();
        case DType::F8E5M2: return mini_bridge<F8E5M2>();
        case DType::F8E5M2FNUZ: return mini_bridge<F8E5M2FNUZ>();
        case DType::F4E2M1: return mini_bridge<F4E2M1>();
        case DType::F8E8M0: return mini_bridge<F8E8M0>();
        case DType::I4: return int_bridge<4, true>();
        case DType::U4: return int_bridge<4, false>();
        case DType::I2: return int_bridge<2, true>();
        case DType::U2: return int_bridge<2, false>();
        default: throw Unsupported(std::string("no conversion of ") + name_of(d));
    }
}

template <class A> Step plain_from(DType to) {
    if (to == DType::Bool) return to_bool<A>;
    return visit<PlainTypes>(to, [](auto b) -> Step { return plain<A, decltype(b)>; });
}
Step plain_step(DType from, DType to) {
    return visit<PlainTypes>(from, [&](auto a) { return plain_from<decltype(a)>(to); });
}

}  // namespace

Converter::Converter(DType from, DType to, CastRules rules) : from_size_(size_of(from)), rules_(rules) {
    if (from == to && from_size_ > 0) return;
    Bridge first{from, nullptr, nullptr}, last{to, nullptr, nullptr};
    if (!is_plain(from)) first = bridge(from);
    if (!is_plain(to)) last = bridge(to);
    if (first.in) add(first.in, first.hub);
    bool reduces = first.hub == DType::F64 && last.out && last.hub == DType::F32;
    if (from == DType::Bool && first.hub != last.hub) add(from_bool, DType::U8);
    if (first.hub != last.hub) {
        Step own = first.hub == DType::F32 ? last.from_f32 : first.hub == DType::F64 ? last.from_f64 : nullptr;
        add(own ? own : reduces ? to_odd : plain_step(first.hub, last.hub), last.hub);
    }
    if (last.out) add(last.out, to);
}
void Converter::add(Step step, DType to) {
    step_[steps_] = step;
    size_[steps_++] = size_of(to);
}
void Converter::operator()(const void* from, void* to, int64_t n) const {
    alignas(64) char buffer[2][kBlock * 8];
    for (int64_t done = 0; done < n; done += kBlock) {
        int64_t part = std::min(kBlock, n - done);
        const void* x = static_cast<const char*>(from) + done * static_cast<int64_t>(from_size_);
        for (int s = 0; s < steps_; ++s) {
            void* y = s + 1 < steps_ ? buffer[s % 2] : static_cast<char*>(to) + done * static_cast<int64_t>(size_[s]);
            step_[s](x, y, part, rules_);
            x = y;
        }
    }
}

namespace {

class RunCast final : public Prepared {
  public:
    explicit RunCast(const Converter& c) : convert_(c) {}
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const auto from = static_cast<int64_t>(size_of(in[0].dtype())), to = static_cast<int64_t>(size_of(out[0].dtype()));
        parallel_ranges(context.threads, in[0].count(), kBlockGrain, [&](int64_t begin, int64_t end) {
            const char* x = in[0].as<char>() + begin * from;
            char* y = out[0].as<char>() + begin * to;
            if (convert_) convert_(x, y, end - begin);
            else if (x != y) std::memcpy(y, x, static_cast<size_t>((end - begin) * to));
        });
    }

  private:
    Converter convert_;
};

// Only the first operand's data is read; CastLike takes its type from the second one.
class CastKernel final : public Kernel {
  public:
    CastKernel(DType from, DType to, const Converter& convert) : from_(from), to_(to), convert_(convert) {}
    int alias() const override { return convert_ ? -1 : 0; }
    uint32_t inplace() const override { return size_of(from_) == size_of(to_) ? 1 : 0; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        if (in[0].dtype() != from_) throw BadOperand(std::string("the input is ") + name_of(in[0].dtype()) + ", expected " + name_of(from_));
        out[0] = {to_, in[0].shape()};
        return std::make_unique<RunCast>(convert_);
    }

  private:
    DType from_, to_;
    Converter convert_;
};

CastRules rules_of(const Attrs& attrs) {
    CastRules rules;
    rules.saturate = attrs.integer("saturate", 1) != 0;
    std::string round = attrs.text("round_mode", "up");
    if (round == "down") rules.round = CastRules::Round::Down;
    else if (round == "nearest") rules.round = CastRules::Round::Nearest;
    else if (round != "up") throw BadOperand("round_mode is '" + round + "', expected up, down or nearest");
    return rules;
}
DType operand_dtype(const NodeSpec& s, size_t i) {
    if (!s.has_input(i)) throw Unsupported("input " + std::to_string(i) + " is missing");
    return s.inputs[i].dtype;
}
std::unique_ptr<Kernel> make_cast(const NodeSpec& s, DType to) {
    DType from = operand_dtype(s, 0);
    return std::make_unique<CastKernel>(from, to, Converter(from, to, rules_of(s.attrs)));
}
std::unique_ptr<Kernel> make_bit_cast(const NodeSpec& s) {
    DType from = operand_dtype(s, 0), to = static_cast<DType>(s.attrs.integer("to", 0));
    if (size_of(from) == 0 || size_of(from) != size_of(to)) throw BadOperand(std::string("the bits of ") + name_of(from) + " are no " + name_of(to));
    return std::make_unique<CastKernel>(from, to, Converter());
}

}  // namespace

void register_cast(Registry& r) {
    r.add("Cast", [](const NodeSpec& s) { return make_cast(s, static_cast<DType>(s.attrs.integer("to", 0))); });
    r.add("CastLike", [](const NodeSpec& s) { return make_cast(s, operand_dtype(s, 1)); });
    r.add("BitCast", make_bit_cast);
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
