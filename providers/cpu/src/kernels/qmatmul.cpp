// Matrix products of 8-bit operands: MatMulInteger, QLinearMatMul and ONNX Runtime's MatMulIntegerToFloat and
// DynamicQuantizeMatMul. They differ in where scales and zero points come from, and in what becomes of the 32-bit sums.
// https://onnx.ai/onnx/operators/onnx__MatMulInteger.html, __QLinearMatMul.html;
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
#include <cmath>
#include <limits>

#include "kernels/cast.h"
#include "kernels/product.h"
#include "kernels/qgemm.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

enum class Result : uint8_t { Integer, Float, Quantized };

// Which input is what; -1: the operator has no such input.
struct Inputs {
    int a, b, a_scale, b_scale, a_zero, b_zero, y_scale, y_zero, bias;
    Result result;
    bool dynamic;  // A is float32, quantised on the way
};
constexpr Inputs kMatMulInteger{0, 1, -1, -1, 2, 3, -1, -1, -1, Result::Integer, false};
constexpr Inputs kQLinearMatMul{0, 3, 1, 4, 2, 5, 6, 7, -1, Result::Quantized, false};
constexpr Inputs kIntegerToFloat{0, 1, 2, 3, 4, 5, -1, -1, 6, Result::Float, false};
constexpr Inputs kDynamicQuantize{0, 1, -1, 2, -1, 3, -1, -1, 4, Result::Float, true};

bool is_byte(DType t) { return t == DType::U8 || t == DType::I8; }
ByteMatrix bytes(const Tensor& t, int64_t offset, Strides s) {
    return {t.as<uint8_t>() + offset, t.dtype() == DType::I8, s.row, s.column};
}

// One value for all, or one for each row (column) of a matrix, or of all matrices of the batch.
template <class T> struct PerLine {
    std::vector<T> values;
    const T* line(int64_t i) const { return values.data() + i % static_cast<int64_t>(values.size()); }
    int step() const { return values.size() > 1 ? 1 : 0; }
};
void check_lines(const Tensor& t, const char* what, int64_t lines, int64_t all) {
    const int64_t n = t.count();
    if (n != 1 && n != lines && n != all)
        throw BadOperand(std::string(what) + " has " + std::to_string(n) + " values; it needs one, or one for each of " + std::to_string(lines) + " lines");
}
PerLine<float> scales_of(const Tensor* t) {
    PerLine<float> s{{1.f}};
    if (!t) return s;
    s.values.resize(static_cast<size_t>(t->count()));
    Converter convert(t->dtype(), DType::F32);
    if (convert) convert(t->data, s.values.data(), t->count());
    else std::copy(t->as<float>(), t->as<float>() + t->count(), s.values.begin());
    return s;
}
PerLine<int32_t> zeros_of(const Tensor* t) {
    PerLine<int32_t> z{{0}};
    if (!t) return z;
    z.values.clear();
    for (int64_t i = 0; i < t->count(); ++i)
        z.values.push_back(t->dtype() == DType::I8 ? t->as<int8_t>()[i] : t->as<uint8_t>()[i]);
    return z;
}

struct Quantization {
    PerLine<float> a_scale, b_scale, y_scale;
    PerLine<int32_t> a_zero, b_zero, y_zero;
    const float* bias = nullptr;
};

// Where the sums of one matrix of the batch go.
struct Target {
    const Quantization& q;
    int64_t a_line, b_line, y_line;  // the first row of A, column of B, row of the output among those of all matrices
    int64_t n;

    void integers(const int32_t* tile, int32_t* c, int64_t row, int64_t column, int64_t rows, int64_t columns) const {
        for (int64_t r = 0; r < rows; ++r) std::copy(tile + r * kPanel, tile + r * kPanel + columns, c + (row + r) * n + column);
    }
    void floats(const int32_t* tile, float* c, int64_t row, int64_t column, int64_t rows, int64_t columns) const {
        const int step = q.b_scale.step();
        const float* sb = q.b_scale.line(b_line + column);
        for (int64_t r = 0; r < rows; ++r) {
            const float sa = *q.a_scale.line(a_line + row + r);
            float* to = c + (row + r) * n + column;
            for (int64_t j = 0; j < columns; ++j) to[j] = static_cast<float>(tile[r * kPanel + j]) * (sa * sb[j * step]);
            if (q.bias)
                for (int64_t j = 0; j < columns; ++j) to[j] += q.bias[column + j];
        }
    }
    template <class T> void quantized(const int32_t* tile, T* c, int64_t row, int64_t column, int64_t rows, int64_t columns) const {
        const int step = q.b_scale.step();
        const float* sb = q.b_scale.line(b_line + column);
        constexpr float low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
        for (int64_t r = 0; r < rows; ++r) {
            const float sa = *q.a_scale.line(a_line + row + r), sy = *q.y_scale.line(y_line + row + r);
            const float zero = static_cast<float>(*q.y_zero.line(y_line + row + r));
            T* to = c + (row + r) * n + column;
            for (int64_t j = 0; j < columns; ++j) {
                float v = std::nearbyint(static_cast<float>(tile[r * kPanel + j]) * (sa * sb[j * step] / sy)) + zero;
                v = v > low ? v : low;
                to[j] = static_cast<T>(v < high ? v : high);
            }
        }
    }
};

using PackedList = std::vector<PackedBytes>;

class ByteProduct final : public Prepared {
  public:
    ByteProduct(const Inputs& at, MatrixLayout layout, std::shared_ptr<const PackedList> packed, int64_t a_count)
        : at_(at), layout_(std::move(layout)), packed_(std::move(packed)) {
        if (at.dynamic) workspace = static_cast<size_t>(a_count);
        flops = layout_.flops();
        algorithm = "8-bit gemm";
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const MatrixLayout& l = layout_;
        Tensor a = in[at_.a];
        const Quantization q = quantization(in, a, context.workspace);
        for_each_batch(context.threads, l.batch, l.flops(), [&](int64_t i, int threads) {
            const int64_t a_offset = l.a_offset[static_cast<size_t>(i)], b_offset = l.b_offset[static_cast<size_t>(i)];
            const Target target{q, l.k ? a_offset / l.k : i * l.m, l.k ? b_offset / l.k : i * l.n, i * l.m, l.n};
            const ZeroPoint az{q.a_zero.line(target.a_line), q.a_zero.step()}, bz{q.b_zero.line(target.b_line), q.b_zero.step()};
            std::vector<int32_t> repeated;  // a vector of zero points that serves several folded matrices
            const PackedBytes local = packed_ ? PackedBytes{} : pack_bytes(bytes(in[at_.b], b_offset, l.b), l.k, l.n, scratch(2, packed_bytes_size(l.k, l.n)));
            const PackedBytes& b = packed_ ? (*packed_)[static_cast<size_t>(l.k ? b_offset / (l.k * l.n) : 0)] : local;
            byte_gemm(l.m, bytes(a, a_offset, l.a), cycled(az, q.a_zero, repeated), b, bz, finish(target, out[0], i * l.m * l.n), threads);
        });
    }

  private:
    // The operands as they are now; a dynamic A is quantised, and `a` becomes its bytes.
    Quantization quantization(const Tensor* in, Tensor& a, void* workspace) const {
        auto find = [&](int i) { return i >= 0 && in[i].present() ? &in[i] : nullptr; };
        Quantization q{scales_of(find(at_.a_scale)), scales_of(find(at_.b_scale)), scales_of(find(at_.y_scale)),
                       zeros_of(find(at_.a_zero)), zeros_of(find(at_.b_zero)), zeros_of(find(at_.y_zero))};
        if (const Tensor* bias = find(at_.bias)) q.bias = bias->as<float>();
        if (at_.dynamic) {
            const DynamicScale s = dynamic_scale(a.as<float>(), a.count());
            quantize(a.as<float>(), a.count(), s, static_cast<uint8_t*>(workspace));
            a = {{DType::U8, a.shape()}, workspace};
            q.a_scale.values = {s.scale};
            q.a_zero.values = {s.zero};
        }
        return q;
    }
    ZeroPoint cycled(ZeroPoint zero, const PerLine<int32_t>& all, std::vector<int32_t>& repeated) const {
        const int64_t have = static_cast<int64_t>(all.values.size());
        if (have == 1 || have >= layout_.m) return zero;
        for (int64_t i = 0; i < layout_.m; ++i) repeated.push_back(*all.line(i));
        return {repeated.data(), 1};
    }
    FinishTile finish(const Target& t, const Tensor& out, int64_t offset) const {
        if (at_.result == Result::Integer)
            return [t, c = out.as<int32_t>() + offset](const int32_t* tile, int64_t i, int64_t j, int64_t r, int64_t w) { t.integers(tile, c, i, j, r, w); };
        if (at_.result == Result::Float)
            return [t, c = out.as<float>() + offset](const int32_t* tile, int64_t i, int64_t j, int64_t r, int64_t w) { t.floats(tile, c, i, j, r, w); };
        if (out.dtype() == DType::I8)
            return [t, c = out.as<int8_t>() + offset](const int32_t* tile, int64_t i, int64_t j, int64_t r, int64_t w) { t.quantized(tile, c, i, j, r, w); };
        return [t, c = out.as<uint8_t>() + offset](const int32_t* tile, int64_t i, int64_t j, int64_t r, int64_t w) { t.quantized(tile, c, i, j, r, w); };
    }
    Inputs at_;
    MatrixLayout layout_;
    std::shared_ptr<const PackedList> packed_;
};

std::shared_ptr<const PackedList> pack_constant(const Operand& b) {
    if (!b.constant || b.shape.rank < 2 || b.shape.count() == 0) return nullptr;
    const Shape& s = b.shape;
    const int64_t k = s[s.rank - 2], n = s.back();
    return packed_as<PackedList>(b.key, "byte-gemm-b" + std::to_string(kPanel) + "x" + std::to_string(kGroup) + name_of(b.dtype) + s.str(), [&] {
        auto list = std::make_shared<PackedList>();
        for (int64_t i = 0; i < s.count(0, s.rank - 2); ++i) list->push_back(pack_bytes(bytes(*b.constant, i * k * n, {n, 1}), k, n));
        return list;
    });
}

class ByteProductKernel final : public Kernel {
  public:
    ByteProductKernel(const NodeSpec& s, const Inputs& at) : at_(at) {
        for (int required : {at.a, at.b, at.b_scale, at.a_scale, at.y_scale})
            if (required >= 0 && !s.has_input(static_cast<size_t>(required))) throw BadOperand("input " + std::to_string(required) + " is missing");
        for (int data : {at.a, at.b})
            if (!is_byte(s.inputs[static_cast<size_t>(data)].dtype) && !(at.dynamic && data == at.a))
                throw Unsupported(std::string("a quantised product of ") + name_of(s.inputs[static_cast<size_t>(data)].dtype));
        for (int* optional : {&at_.a_zero, &at_.b_zero, &at_.y_zero, &at_.bias})
            if (*optional >= 0 && !s.has_input(static_cast<size_t>(*optional))) *optional = -1;
        if (at.result == Result::Float && s.outputs[0] != DType::F32 && s.outputs[0] != DType::Undefined) throw Unsupported("a quantised product that is not float32");
        packed_ = pack_constant(s.inputs[static_cast<size_t>(at.b)]);
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape &a = in[at_.a].shape(), &b = in[at_.b].shape();
        MatrixLayout l = matrix_layout(a, b);
        check_operands(in, a.rank > 1 ? a[a.rank - 2] : 1, b.rank > 1 ? b.back() : 1, l);
        out[0] = {result_type(in), l.out};
        return std::make_unique<ByteProduct>(at_, std::move(l), packed_, in[at_.a].count());
    }

  private:
    DType result_type(const Tensor* in) const {
        if (at_.result == Result::Integer) return DType::I32;
        if (at_.result == Result::Float) return DType::F32;
        if (at_.y_zero < 0) return in[at_.a].dtype();
        if (!is_byte(in[at_.y_zero].dtype())) throw BadOperand(std::string("the output's zero point is ") + name_of(in[at_.y_zero].dtype()));
        return in[at_.y_zero].dtype();
    }
    void check_operands(const Tensor* in, int64_t rows, int64_t columns, const MatrixLayout& l) const {
        const int64_t all_rows = l.k ? in[at_.a].count() / l.k : rows, all_columns = l.k ? in[at_.b].count() / l.k : columns;
        auto check = [&](int i, const char* what, int64_t lines, int64_t all) {
            if (i >= 0) check_lines(in[i], what, lines, all);
        };
        check(at_.a_scale, "the scale of A", rows, all_rows);
        check(at_.a_zero, "the zero point of A", rows, all_rows);
        check(at_.b_scale, "the scale of B", columns, all_columns);
        check(at_.b_zero, "the zero point of B", columns, all_columns);
        check(at_.y_scale, "the scale of the output", rows, l.batch * l.m);
        check(at_.y_zero, "the zero point of the output", rows, l.batch * l.m);
        if (at_.dynamic && in[at_.a].dtype() != DType::F32) throw BadOperand("A must be float32");
        check_zero_type(in, at_.a, at_.a_zero);
        check_zero_type(in, at_.b, at_.b_zero);
        if (at_.bias >= 0 && (in[at_.bias].dtype() != DType::F32 || in[at_.bias].count() != columns)) throw BadOperand("the bias must hold " + std::to_string(columns) + " float32 values");
    }
    static void check_zero_type(const Tensor* in, int data, int zero) {
        if (zero >= 0 && in[zero].dtype() != in[data].dtype()) throw BadOperand("a zero point differs in type from what it belongs to");
    }
    Inputs at_;
    std::shared_ptr<const PackedList> packed_;
};

template <const Inputs& at> std::unique_ptr<Kernel> make(const NodeSpec& s) { return std::make_unique<ByteProductKernel>(s, at); }

}  // namespace

void register_qmatmul(Registry& r) {
    r.add("MatMulInteger", make<kMatMulInteger>);
    r.add("QLinearMatMul", make<kQLinearMatMul>);
    r.add("MatMulIntegerToFloat", make<kIntegerToFloat>, "com.microsoft");
    r.add("DynamicQuantizeMatMul", make<kDynamicQuantize>, "com.microsoft");
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
