// MatMul, Gemm and their fused forms: opweave.FusedMatMul (A, B, bias, residual; transA, transB, alpha, activation,
// activation_params) computes activation(alpha A B + bias + residual); com.microsoft.FusedMatMul has batch transposes.
// https://onnx.ai/onnx/operators/onnx__MatMul.html, __Gemm.html
#include <cmath>

#include "kernels/dtypes.h"
#include "kernels/product.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

using ProductTypes = Types<float, double, f16, bf16, int32_t, int64_t, uint32_t, uint64_t>;

// What an operator computes: activation(alpha * A x B + beta * in[2] + in[3]).
struct ProductSpec {
    Transposes transposes;
    double alpha = 1, beta = 1;
    ActivationSpec activation;
    bool matrices_only = false;  // Gemm: both operands have two dimensions
    int addends = 0;             // how many inputs after B
};

// The inputs that are added to the product, brought to the form that an epilogue takes.
class Addends {
  public:
    void add(size_t input, const Shape& s, const Shape& out, int64_t n, double scale) {
        const Broadcast layout(s, out);  // checks
        const bool column = s.count() == n && (s.rank == 0 || s.back() == n);
        if (column && s.count() != out.count() && column_ < 0) {
            column_ = static_cast<int>(input);
            column_scale_ = static_cast<float>(scale);
            n_ = n;
        } else {
            full_.push_back({input, layout, s.count() == out.count(), static_cast<float>(scale)});
        }
        count_ = out.count();
    }
    size_t workspace() const {
        size_t floats = column_ >= 0 && column_scale_ != 1 ? static_cast<size_t>(n_) : 0;
        return 4 * (floats + (full_.empty() || direct() ? 0 : static_cast<size_t>(count_)));
    }
    void bind(const float* const* in, float* workspace, int64_t n, Epilogue& e) const {
        if (column_ >= 0) e.column_bias = in[column_];
        if (column_ >= 0 && column_scale_ != 1) {
            for (int64_t j = 0; j < n_; ++j) workspace[j] = in[column_][j] * column_scale_;
            e.column_bias = workspace;
            workspace += n_;
        }
        if (full_.empty()) return;
        e.residual = direct() ? in[full_[0].input] : workspace;
        e.ldr = n;
        if (!direct()) add_up(in, workspace);
    }

  private:
    struct Full {
        size_t input;
        Broadcast layout;
        bool whole;
        float scale;
    };
    bool direct() const { return full_.size() == 1 && full_[0].whole && full_[0].scale == 1; }
    void add_up(const float* const* in, float* to) const {
        float block[kBlock];
        for (int64_t start = 0; start < count_; start += kBlock) {
            const int64_t size = std::min(kBlock, count_ - start);
            std::fill(to + start, to + start + size, 0.f);
            for (const Full& f : full_) {
                f.layout.read(in[f.input], start, size, block, 4);
                for (int64_t i = 0; i < size; ++i) to[start + i] += f.scale * block[i];
            }
        }
    }
    std::vector<Full> full_;
    int column_ = -1;
    float column_scale_ = 1;
    int64_t n_ = 0, count_ = 0;
};

using PackedList = std::vector<PackedB>;

// float32, and the narrow types through it. Workspace: widened operands, the wide result, what the addends need.
template <class T> class FloatProduct final : public Prepared {
  public:
    FloatProduct(MatrixLayout layout, const ProductSpec& spec, std::shared_ptr<const PackedList> packed, const Tensor* in)
        : layout_(std::move(layout)), packed_(std::move(packed)), inputs_(2 + static_cast<size_t>(spec.addends)) {
        epilogue_.alpha = static_cast<float>(spec.alpha);
        epilogue_.activation = spec.activation;
        for (size_t i = 2; i < inputs_; ++i)
            if (in[i].present()) addends_.add(i, in[i].shape(), layout_.out, layout_.n, i == 2 ? spec.beta : 1);
        workspace = addends_.workspace();
        if constexpr (is_narrow<T>) {
            workspace += wide_bytes(layout_.out.count());
            for (size_t i = 0; i < inputs_; ++i)
                if (widened(in[i], i)) workspace += wide_bytes(in[i].count());
        }
        flops = layout_.flops();
        algorithm = packed_ ? "gemm, packed weights" : "gemm";
    }

    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        char* workspace_at = static_cast<char*>(context.workspace);
        const float* data[4] = {};
        for (size_t i = 0; i < inputs_; ++i) data[i] = floats(in[i], i, workspace_at);
        if constexpr (is_narrow<T>) {
            float* wide = reinterpret_cast<float*>(workspace_at);
            compute(context.threads, data, wide, reinterpret_cast<float*>(workspace_at + wide_bytes(layout_.out.count())));
            narrow(wide, out[0].as<T>(), layout_.out.count());
        } else {
            compute(context.threads, data, out[0].as<float>(), reinterpret_cast<float*>(workspace_at));
        }
    }

  private:
    static size_t wide_bytes(int64_t count) { return static_cast<size_t>(round_up(count, 16)) * 4; }
    bool widened(const Tensor& t, size_t i) const { return t.present() && !(i == 1 && packed_); }
    const float* floats(const Tensor& t, size_t i, char*& workspace_at) const {
        if constexpr (is_narrow<T>) {
            if (!widened(t, i)) return nullptr;
            float* wide = reinterpret_cast<float*>(workspace_at);
            workspace_at += wide_bytes(t.count());
            widen(t.as<T>(), wide, t.count());
            return wide;
        }
        return t.as<float>();
    }
    void compute(int threads, const float* const* in, float* c, float* workspace_at) const {
        const MatrixLayout& l = layout_;
        Epilogue whole = epilogue_;
        addends_.bind(in, workspace_at, l.n, whole);
        for_each_batch(threads, l.batch, l.flops(), [&](int64_t i, int use) {
            const Epilogue e = whole.at(i * l.m, 0);
            const FloatMatrix a{in[0] + l.a_offset[static_cast<size_t>(i)], l.a};
            float* to = c + i * l.m * l.n;
            const int64_t offset = l.b_offset[static_cast<size_t>(i)];
            if (packed_) product(l.m, a, (*packed_)[static_cast<size_t>(l.k ? offset / (l.k * l.n) : 0)], to, l.n, e, use);
            else product(l.m, l.n, l.k, a, {in[1] + offset, l.b}, to, l.n, e, use);
        });
    }
    MatrixLayout layout_;
    std::shared_ptr<const PackedList> packed_;
    size_t inputs_;
    Epilogue epilogue_;
    Addends addends_;
};

// The types without an engine. Signed integers are computed as unsigned ones, so that they wrap.
template <class T> class PlainProduct final : public Prepared {
  public:
    PlainProduct(MatrixLayout layout, const ProductSpec& spec, const Tensor* in) : layout_(std::move(layout)), spec_(spec) {
        if (spec.addends > 0 && in[2].present()) c_.push_back(Broadcast(in[2].shape(), layout_.out));
        flops = layout_.flops();
        algorithm = "plain loops";
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const MatrixLayout& l = layout_;
        for_each_batch(context.threads, l.batch, l.flops(), [&](int64_t i, int threads) {
            const U* a = in[0].as<U>() + l.a_offset[static_cast<size_t>(i)];
            const U* b = in[1].as<U>() + l.b_offset[static_cast<size_t>(i)];
            U* c = out[0].as<U>() + i * l.m * l.n;
            parallel_ranges(threads, l.m, 16, [&](int64_t begin, int64_t end) {
                plain_product(end - begin, l.n, l.k, a + begin * l.a.row, l.a, b, l.b, c + begin * l.n);
            });
        });
        if (!c_.empty() || spec_.alpha != 1) finish(in, out[0].as<T>());
    }

  private:
    using U = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::enable_if<true, T>>::type;
    void finish(const Tensor* in, T* y) const {
        T block[kBlock] = {};
        const int64_t count = layout_.out.count();
        for (int64_t start = 0; start < count; start += kBlock, y += kBlock) {
            const int64_t size = std::min(kBlock, count - start);
            if (!c_.empty()) c_[0].read(in[2].data, start, size, block, sizeof(T));
            for (int64_t i = 0; i < size; ++i) y[i] = combine(y[i], block[i]);
        }
    }
    T combine(T product, T c) const {
        if (spec_.alpha == 1 && spec_.beta == 1) return static_cast<T>(static_cast<U>(product) + static_cast<U>(c));
        return static_cast<T>(spec_.alpha * static_cast<double>(product) + spec_.beta * static_cast<double>(c));
    }
    MatrixLayout layout_;
    ProductSpec spec_;
    std::vector<Broadcast> c_;
};

// Every matrix of a constant B in panels; null where packing does not apply.
std::shared_ptr<const PackedList> pack_constant(const Operand& b, Transposes t) {
    if (!b.constant || b.shape.rank < 2 || t.batch_b || b.shape.count() == 0) return nullptr;
    const Shape& s = b.shape;
    int64_t k = s[s.rank - 2], n = s.back();
    const Strides strides = t.b ? Strides{1, n} : Strides{n, 1};
    if (t.b) std::swap(k, n);
    if (n == 1) return nullptr;
    const std::string scheme = "gemm-b" + std::to_string(kPanel) + (t.b ? "t" : "") + name_of(b.dtype) + s.str();
    auto pack = [&](auto type) -> std::shared_ptr<const PackedList> {
        using T = decltype(type);
        return packed_as<PackedList>(b.key, scheme, [&] {
            auto list = std::make_shared<PackedList>();
            std::vector<wide_t<T>> wide(is_narrow<T> ? static_cast<size_t>(k * n) : 0);
            for (int64_t i = 0; i < s.count(0, s.rank - 2); ++i) {
                const T* from = b.constant->as<T>() + i * k * n;
                if constexpr (is_narrow<T>) {
                    widen(from, wide.data(), k * n);
                    list->push_back(pack_b(wide.data(), strides.row, strides.column, k, n));
                } else {
                    list->push_back(pack_b(from, strides.row, strides.column, k, n));
                }
            }
            return list;
        });
    };
    if (b.dtype == DType::F32) return pack(float{});
    if (b.dtype == DType::F16) return pack(f16{});
    if (b.dtype == DType::BF16) return pack(bf16{});
    return nullptr;
}

class ProductKernel final : public Kernel {
  public:
    ProductKernel(const NodeSpec& s, ProductSpec spec) : spec_(spec) {
        if (!s.has_input(0) || !s.has_input(1)) throw BadOperand("an operand of the product is missing");
        spec_.addends = std::min(spec_.addends, static_cast<int>(s.inputs.size()) - 2);
        const DType dtype = s.inputs[0].dtype;
        visit<ProductTypes>(dtype, [](auto) { return 0; });
        const bool has_engine = dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16;
        if (!has_engine && (spec.activation.kind != Activation::None || s.has_input(3))) throw Unsupported(std::string("a fused product of ") + name_of(dtype));
        packed_ = pack_constant(s.inputs[1], spec_.transposes);
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        for (int i = 1; i < 2 + spec_.addends; ++i)
            if (in[i].present() && in[i].dtype() != in[0].dtype()) throw BadOperand(std::string("operands of types ") + name_of(in[0].dtype()) + " and " + name_of(in[i].dtype()));
        if (spec_.matrices_only && (in[0].shape().rank != 2 || in[1].shape().rank != 2)) throw BadOperand("Gemm needs matrices, got " + in[0].shape().str() + " and " + in[1].shape().str());
        MatrixLayout layout = matrix_layout(in[0].shape(), in[1].shape(), spec_.transposes);
        out[0] = {in[0].dtype(), layout.out};
        return visit<ProductTypes>(in[0].dtype(), [&](auto type) -> std::unique_ptr<Prepared> {
            using T = decltype(type);
            if constexpr (std::is_same_v<wide_t<T>, float>) return std::make_unique<FloatProduct<T>>(std::move(layout), spec_, packed_, in);
            else return std::make_unique<PlainProduct<T>>(std::move(layout), spec_, in);
        });
    }

  private:
    ProductSpec spec_;
    std::shared_ptr<const PackedList> packed_;
};

bool flag(const NodeSpec& s, const char* name) { return s.attrs.integer(name, 0) != 0; }

std::unique_ptr<Kernel> make_gemm(const NodeSpec& s) {
    ProductSpec p;
    p.transposes = {flag(s, "transA"), flag(s, "transB")};
    p.alpha = s.attrs.real("alpha", 1);
    p.beta = s.attrs.real("beta", 1);
    p.matrices_only = true;
    p.addends = 1;
    return std::make_unique<ProductKernel>(s, p);
}
std::unique_ptr<Kernel> make_fused(const NodeSpec& s) {
    ProductSpec p;
    p.transposes = {flag(s, "transA"), flag(s, "transB")};
    p.alpha = s.attrs.real("alpha", 1);
    p.activation = activation_of(s.attrs);
    p.addends = 2;
    return std::make_unique<ProductKernel>(s, p);
}
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.FusedMatMul
std::unique_ptr<Kernel> make_fused_microsoft(const NodeSpec& s) {
    ProductSpec p;
    p.transposes = {flag(s, "transA"), flag(s, "transB"), flag(s, "transBatchA"), flag(s, "transBatchB")};
    p.alpha = s.attrs.real("alpha", 1);
    return std::make_unique<ProductKernel>(s, p);
}

}  // namespace

void register_matmul(Registry& r) {
    r.add("MatMul", [](const NodeSpec& s) { return std::make_unique<ProductKernel>(s, ProductSpec{}); });
    r.add("Gemm", make_gemm);
    r.add("FusedMatMul", make_fused, "opweave");
    r.add("FusedMatMul", make_fused_microsoft, "com.microsoft");
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
