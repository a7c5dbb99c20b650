// QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear (https://onnx.ai/onnx/operators/), on the blocks of
// broadcast.h: a scale per tensor, per axis or per block of an axis is an operand that broadcasts to a view of the input.
#include <algorithm>
#include <cmath>
#include <mutex>

#include "kernels/axes.h"
#include "kernels/elementwise.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

struct Range { int32_t low, high; };
// The integers a type holds; low > high for floats.
Range range_of(DType t) {
    switch (t) {
        case DType::U8: return {0, 255};
        case DType::I8: return {-128, 127};
        case DType::U16: return {0, 65535};
        case DType::I16: return {-32768, 32767};
        case DType::U4: return {0, 15};
        case DType::I4: return {-8, 7};
        case DType::U2: return {0, 3};
        case DType::I2: return {-2, 1};
        default: return {0, -1};
    }
}
bool is_minifloat(DType t) {
    return t == DType::F4E2M1 || t == DType::F8E4M3FN || t == DType::F8E4M3FNUZ || t == DType::F8E5M2 || t == DType::F8E5M2FNUZ;
}

// Scale or zero point of shape `p` over an input of shape `x`. Where the last block of an axis is shorter, no view
// makes it broadcast: `repeats` is set, and the operand is spelled out element by element.
struct Granularity {
    TensorDesc operand;
    Shape view;          // of the input
    bool repeats = false;
    int axis = 0;
    int64_t block = 0;

    Granularity(const TensorDesc& p, const Shape& x, int64_t axis_attribute, int64_t block_size) : operand(p), view(x) {
        if (block_size < 0) throw BadOperand("block_size is " + std::to_string(block_size));
        if (p.count() == 1) {
            operand.shape = Shape{};
            return;
        }
        axis = checked_axis(axis_attribute, x.rank);
        block = block_size;
        if (block == 0) per_axis(p.shape, x);
        else per_block(p.shape, x);
    }

  private:
    void per_axis(const Shape& p, const Shape& x) {
        if (p.rank != 1 || p[0] != x[axis]) throw BadOperand("a scale or zero point of shape " + p.str() + " does not fit axis " + std::to_string(axis) + " of " + x.str());
        operand.shape = x;
        for (int i = 0; i < x.rank; ++i)
            if (i != axis) operand.shape[i] = 1;
    }
    void per_block(const Shape& p, const Shape& x) {
        Shape expected = x;
        expected[axis] = (x[axis] + block - 1) / block;
        if (p != expected) throw BadOperand("a scale or zero point of shape " + p.str() + " does not fit blocks of " + std::to_string(block) + " along axis " + std::to_string(axis) + " of " + x.str());
        repeats = x[axis] % block != 0;
        if (repeats) {
            operand.shape = x;
            return;
        }
        view = {x.count(0, axis), x[axis] / block, block, x.count(axis + 1)};
        operand.shape = {view[0], view[1], 1, view[3]};
    }
};

// A scale or zero point ready to be read in blocks.
class Parameter {
  public:
    Parameter() = default;
    Parameter(const TensorDesc& p, const Shape& x, int64_t axis, int64_t block, DType computed)
        : stored_(p), repeats_(false), input_(x) {
        Granularity g(p, x, axis, block);
        repeats_ = g.repeats;
        axis_ = g.axis;
        block_ = g.block;
        source_ = BlockSource(g.operand, g.view, computed);
        spelled_ = repeats_ ? (static_cast<size_t>(x.count()) * size_of(p.dtype) + 63) / 64 * 64 : 0;
    }
    size_t workspace() const { return spelled_ + source_.workspace(); }
    void open(const Tensor& t, char* space) const {
        if (repeats_) spell_out(t.as<char>(), space);
        source_.open(repeats_ ? space : t.data, space + spelled_);
    }
    const void* block(const Tensor& t, const char* space, int64_t at, int64_t n, char* buffer) const {
        return source_.block(repeats_ ? space : t.data, space + spelled_, at, n, buffer);
    }

  private:
    void spell_out(const char* from, char* to) const {
        const Lanes x(input_, axis_);
        const int64_t row = x.inner * static_cast<int64_t>(size_of(stored_.dtype)), blocks = (x.length + block_ - 1) / block_;
        for (int64_t o = 0; o < x.outer; ++o)
            for (int64_t i = 0; i < x.length; ++i, to += row)
                std::memcpy(to, from + (o * blocks + i / block_) * row, static_cast<size_t>(row));
    }
    TensorDesc stored_;
    bool repeats_ = false;
    Shape input_;
    int axis_ = 0;
    int64_t block_ = 0;
    BlockSource source_;
    size_t spelled_ = 0;
};

struct Recipe {
    DType input, scale, zero = DType::Undefined, result;
    DType computed;                       // F32 or F64
    Converter rounded, back;              // to a narrower precision and back, after the division
    Converter load, store;
    int64_t axis, block;
};

// Input, scale and zero point in blocks; `compute` turns them into a block of the type that recipe.store takes.
class RunLinear final : public Prepared {
  public:
    using Compute = void (*)(const Recipe& r, const void* x, const void* scale, const void* zero, void* y, int64_t n);
    RunLinear(const Recipe& r, Compute compute, const Tensor* in, bool has_zero)
        : recipe_(r), compute_(compute), has_zero_(has_zero), count_(in[0].count()) {
        const Shape& x = in[0].shape();
        scale_ = Parameter(in[1].desc, x, r.axis, r.block, r.computed);
        if (has_zero) zero_ = Parameter(in[2].desc, x, r.axis, r.block, r.computed);
        workspace = scale_.workspace() + zero_.workspace();
        flops = 2.0 * static_cast<double>(count_);
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        if (count_ == 0) return;
        char* space = static_cast<char*>(context.workspace);
        scale_.open(in[1], space);
        if (has_zero_) zero_.open(in[2], space + scale_.workspace());
        parallel_ranges(context.threads, count_, kBlockGrain, [&](int64_t begin, int64_t end) {
            for (int64_t at = begin; at < end; at += kBlock) block(space, in, out, at, std::min(kBlock, end - at));
        });
    }

  private:
    void block(const char* space, const Tensor* in, const Tensor* out, int64_t at, int64_t n) const {
        alignas(64) char x[kBlock * 8], scale[kBlock * 8], zero[kBlock * 8], y[kBlock * 8];
        const void* from = in[0].as<char>() + at * static_cast<int64_t>(size_of(recipe_.input));
        if (recipe_.load) {
            recipe_.load(from, x, n);
            from = x;
        }
        const void* s = scale_.block(in[1], space, at, n, scale);
        const void* z = has_zero_ ? zero_.block(in[2], space + scale_.workspace(), at, n, zero) : nullptr;
        char* to = out[0].as<char>() + at * static_cast<int64_t>(size_of(recipe_.result));
        char* result = recipe_.store ? y : to;
        compute_(recipe_, from, s, z, result, n);
        if (recipe_.store) recipe_.store(result, to, n);
    }
    Recipe recipe_;
    Compute compute_;
    bool has_zero_;
    int64_t count_;
    Parameter scale_, zero_;
};

template <class A> A nearest(A x) { return std::nearbyint(x); }

template <class A> void quotient(const Recipe& r, const void* x, const void* scale, A* q, int64_t n) {
    const A *a = static_cast<const A*>(x), *s = static_cast<const A*>(scale);
    for (int64_t i = 0; i < n; ++i) q[i] = a[i] / s[i];
    if (!r.rounded) return;
    alignas(64) char narrow_form[kBlock * 8];
    r.rounded(q, narrow_form, n);
    r.back(narrow_form, q, n);
}
// Saturates before the conversion, so that no quotient is too large for it; NaN becomes the least value.
template <class A> void quantize_integers(const Recipe& r, const void* x, const void* scale, const void* zero, void* y, int64_t n) {
    alignas(64) A q[kBlock];
    quotient<A>(r, x, scale, q, n);
    const A* z = static_cast<const A*>(zero);
    int32_t* out = static_cast<int32_t*>(y);
    const A low = static_cast<A>(range_of(r.result).low), high = static_cast<A>(range_of(r.result).high);
    for (int64_t i = 0; i < n; ++i) {
        A v = nearest(q[i]) + (z ? z[i] : A{0});
        v = v > low ? v : low;
        out[i] = static_cast<int32_t>(v < high ? v : high);
    }
}
template <class A> void quantize_floats(const Recipe& r, const void* x, const void* scale, const void* zero, void* y, int64_t n) {
    A* q = static_cast<A*>(y);
    quotient<A>(r, x, scale, q, n);
    const A* z = static_cast<const A*>(zero);
    if (z && r.result == DType::F4E2M1)  // float8 has none
        for (int64_t i = 0; i < n; ++i) q[i] += z[i];
}
void dequantize(const Recipe&, const void* x, const void* scale, const void* zero, void* y, int64_t n) {
    const float *a = static_cast<const float*>(x), *s = static_cast<const float*>(scale), *z = static_cast<const float*>(zero);
    float* out = static_cast<float*>(y);
    if (z) for (int64_t i = 0; i < n; ++i) out[i] = (a[i] - z[i]) * s[i];
    else for (int64_t i = 0; i < n; ++i) out[i] = a[i] * s[i];
}

class Linear final : public Kernel {
  public:
    Linear(const Recipe& r, RunLinear::Compute compute, bool uses_zero) : recipe_(r), compute_(compute), uses_zero_(uses_zero) {}
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        expect_dtype(in[0], recipe_.input, "the input");
        expect_dtype(in[1], recipe_.scale, "the scale");
        if (uses_zero_) expect_dtype(in[2], recipe_.zero, "the zero point");
        out[0] = {recipe_.result, in[0].shape()};
        return std::make_unique<RunLinear>(recipe_, compute_, in, uses_zero_);
    }

  private:
    Recipe recipe_;
    RunLinear::Compute compute_;
    bool uses_zero_;
};

Recipe common_recipe(const NodeSpec& s) {
    Recipe r;
    r.input = dtype_of_input(s, 0);
    r.scale = dtype_of_input(s, 1);
    if (s.has_input(2)) r.zero = s.inputs[2].dtype;
    r.axis = s.attrs.integer("axis", 1);
    r.block = s.attrs.integer("block_size", 0);
    return r;
}
// The precision of the division: asked for, else that of both operands.
DType precision_of(const NodeSpec& s, const Recipe& r) {
    auto asked = static_cast<DType>(s.attrs.integer("precision", 0));
    if (asked != DType::Undefined) return asked;
    if (r.input == DType::I32 || r.scale == DType::I32) return DType::F64;
    return r.input == r.scale ? r.input : DType::F32;
}
std::unique_ptr<Kernel> make_quantize(const NodeSpec& s) {
    Recipe r = common_recipe(s);
    r.result = static_cast<DType>(s.attrs.integer("output_dtype", 0));
    if (r.zero != DType::Undefined) {
        if (r.result != DType::Undefined && r.result != r.zero) throw BadOperand("output_dtype differs from the type of the zero point");
        r.result = r.zero;
    }
    if (r.result == DType::Undefined) r.result = DType::U8;
    const bool integers = range_of(r.result).low <= range_of(r.result).high;
    if (!integers && !is_minifloat(r.result)) throw Unsupported(std::string("no native quantisation to ") + name_of(r.result));
    const DType precision = precision_of(s, r);
    r.computed = precision == DType::F64 ? DType::F64 : DType::F32;
    if (precision == DType::F16 || precision == DType::BF16) {
        r.rounded = Converter(DType::F32, precision);
        r.back = Converter(precision, DType::F32);
    } else if (precision != DType::F32 && precision != DType::F64) {
        throw Unsupported(std::string("no native quantisation in ") + name_of(precision));
    }
    r.load = Converter(r.input, r.computed);
    CastRules rules;
    rules.saturate = s.attrs.integer("saturate", 1) != 0;
    r.store = Converter(integers ? DType::I32 : r.computed, r.result, rules);
    const bool wide = r.computed == DType::F64;
    RunLinear::Compute compute = integers ? (wide ? quantize_integers<double> : quantize_integers<float>)
                                          : (wide ? quantize_floats<double> : quantize_floats<float>);
    return std::make_unique<Linear>(r, compute, r.zero != DType::Undefined);
}
std::unique_ptr<Kernel> make_dequantize(const NodeSpec& s) {
    Recipe r = common_recipe(s);
    const bool minifloat = is_minifloat(r.input);
    if (!minifloat && r.input != DType::I32 && range_of(r.input).low > range_of(r.input).high)
        throw Unsupported(std::string("no native dequantisation of ") + name_of(r.input));
    if (!minifloat && r.zero != DType::Undefined && r.zero != r.input) throw BadOperand("the zero point must have the type of the input");
    r.result = static_cast<DType>(s.attrs.integer("output_dtype", 0));
    if (r.result == DType::Undefined) r.result = r.scale;
    r.computed = DType::F32;
    r.load = Converter(r.input, DType::F32);
    r.store = Converter(DType::F32, r.result);
    return std::make_unique<Linear>(r, dequantize, r.zero != DType::Undefined && !minifloat);
}

// Scale and zero point from the range of the data, zero included.
class RunDynamic final : public Prepared {
  public:
    explicit RunDynamic(int64_t count) : count_(count) { flops = 4.0 * static_cast<double>(count); }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const float* x = in[0].as<float>();
        float low = 0, high = 0;
        std::mutex mutex;
        parallel_ranges(context.threads, count_, kBlockGrain, [&](int64_t begin, int64_t end) {
            auto [least, most] = bounds(x + begin, end - begin);
            std::lock_guard lock(mutex);
            low = std::min(low, least);
            high = std::max(high, most);
        });
        const float scale = (high == low ? 1.0f : high - low) / 255.0f;
        const float zero = std::nearbyint(std::min(255.0f, std::max(0.0f, 0.0f - low / scale)));
        *out[1].as<float>() = scale;
        *out[2].as<uint8_t>() = static_cast<uint8_t>(zero);
        uint8_t* y = out[0].as<uint8_t>();
        parallel_ranges(context.threads, count_, kBlockGrain, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                float v = nearest(x[i] / scale) + zero;
                v = v > 0.0f ? v : 0.0f;
                y[i] = static_cast<uint8_t>(static_cast<int32_t>(v < 255.0f ? v : 255.0f));
            }
        });
    }

  private:
    static std::pair<float, float> bounds(const float* x, int64_t n) {
        vf low{}, high{};
        int64_t i = 0;
        for (; i + kLanes <= n; i += kLanes) low = vmin(load(x + i), low), high = vmax(load(x + i), high);
        float least = 0, most = 0;
        for (int k = 0; k < kLanes; ++k) least = std::min(least, low[k]), most = std::max(most, high[k]);
        for (; i < n; ++i) least = std::min(least, x[i]), most = std::max(most, x[i]);
        return {least, most};
    }
    int64_t count_;
};
class DynamicQuantize final : public Kernel {
  public:
    explicit DynamicQuantize(const NodeSpec& s) {
        if (dtype_of_input(s, 0) != DType::F32) throw Unsupported("only float32 is quantised dynamically");
        for (size_t k = 0; k < 3; ++k)
            if (!s.has_output(k)) throw Unsupported("an output is omitted");
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        expect_dtype(in[0], DType::F32, "the input");
        out[0] = {DType::U8, in[0].shape()};
        out[1] = {DType::F32, Shape{}};
        out[2] = {DType::U8, Shape{}};
        return std::make_unique<RunDynamic>(in[0].count());
    }
};

}  // namespace

void register_quantize(Registry& r) {
    r.add("QuantizeLinear", make_quantize);
    r.add("DequantizeLinear", make_dequantize);
    r.add("DynamicQuantizeLinear", [](const NodeSpec& s) { return std::make_unique<DynamicQuantize>(s); });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
