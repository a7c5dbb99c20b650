// Conv and opweave.FusedConv (X, W, bias, residual; the attributes of Conv, activation, activation_params), which
// computes activation(conv(X, W) + bias + residual). Five ways: depthwise; a dot product per channel where there is one
// output position; frames of a signal, which are rows that overlap, times channels; positions x channels where there are
// few of them, so that vectors are full; else channels x positions, a matrix product whose right side, the columns of the
// window, is made a block at a time.
// float64 has plain loops. https://onnx.ai/onnx/operators/onnx__Conv.html
#include <mutex>

#include "kernels/conv.h"
#include "kernels/dtypes.h"
#include "kernels/product.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

enum class Way : uint8_t { Depthwise, Dot, Frames, Few, Product };

constexpr int64_t kFewPositions = kPanel - 7, kFewChannels = 32;

// One long window over one channel (a filter bank, a short-time Fourier transform): its outputs are products with rows of x.
bool is_framing(const ConvLayout& l) {
    const Axis &h = l.window.axis[1], &w = l.window.axis[2];
    return l.ic == 1 && l.window.axis[0].in * h.in * h.out == 1 && l.window.axis[0].trivial() && h.trivial() && w.dilation == 1 && w.kernel >= 16 && l.oc >= kFewChannels &&
           w.pad + w.pad_end <= w.kernel;
}

template <class T> Way way_of(const ConvLayout& l) {
    if (!is_narrow<T> && l.window.out_size() > 1 && is_framing(l)) return Way::Frames;
    if (Depthwise::applies(l)) return Way::Depthwise;
    if (l.window.out_size() == 1) return Way::Dot;
    return l.window.out_size() < kFewPositions && l.oc >= kFewChannels ? Way::Few : Way::Product;
}

// Weights as float32, in the one form that a way wants; one matrix a group.
struct ConvWeights {
    std::vector<PackedA> left;   // Product
    std::vector<PackedB> right;  // Frames and Few
    std::vector<float> rows;     // Depthwise and Dot, where they are not the operand itself
};

template <class T> std::vector<float> wide_rows(const Tensor& w) {
    std::vector<float> rows(static_cast<size_t>(w.count()));
    widen(w.as<T>(), rows.data(), w.count());
    return rows;
}
template <class T> std::shared_ptr<const ConvWeights> make_weights(const Tensor& w, int64_t groups, Way way) {
    auto made = std::make_shared<ConvWeights>();
    if constexpr (is_narrow<T>) made->rows = wide_rows<T>(w);
    if (way == Way::Depthwise || way == Way::Dot) return made;
    const int64_t oc = w.shape()[0] / groups, depth = w.shape().count(1);
    for (int64_t g = 0; g < groups; ++g) {
        const float* rows = (is_narrow<T> ? made->rows.data() : w.as<float>()) + g * oc * depth;
        if (way != Way::Product) made->right.push_back(pack_b(rows, 1, depth, depth, oc));
        else made->left.push_back(pack_a(rows, depth, 1, oc, depth));
    }
    made->rows = {};
    return made;
}

// The packing of one constant, which way it is used is known once shapes are: each form is made when first wanted.
class WeightStore {
  public:
    WeightStore(const Operand& w, int64_t groups) : groups_(groups), key_(w.key) {
        if (w.constant) constant_ = *w.constant;
    }
    template <class T> std::shared_ptr<const ConvWeights> get(Way way) const {
        if (!constant_.data) return nullptr;
        const bool plain = way == Way::Depthwise || way == Way::Dot;
        if (plain && !is_narrow<T>) return nullptr;  // the rows are read as they are
        std::lock_guard<std::mutex> guard(mutex_);
        auto& slot = made_[plain ? 0 : way == Way::Product ? 2 : 1];
        if (!slot) {
            const std::string scheme = "conv" + std::to_string(kPackedRows) + "x" + std::to_string(kPanel) + (plain ? "r" : way == Way::Product ? "a" : "b") + std::to_string(groups_) + name_of(constant_.dtype()) + constant_.shape().str();
            slot = packed_as<ConvWeights>(key_, scheme, [&] { return make_weights<T>(constant_, groups_, way); });
        }
        return slot;
    }

  private:
    int64_t groups_;
    std::string key_;
    Tensor constant_;
    mutable std::mutex mutex_;
    mutable std::shared_ptr<const ConvWeights> made_[3];
};

template <class T> class FloatConv final : public Prepared {
  public:
    FloatConv(const ConvLayout& layout, ActivationSpec activation, const WeightStore& store, const Tensor* in, int inputs)
        : layout_(layout), way_(way_of<T>(layout)), activation_(activation), weights_(store.get<T>(way_)), inputs_(inputs) {
        if (way_ == Way::Depthwise) depthwise_ = std::make_unique<Depthwise>(layout);
        if constexpr (is_narrow<T>) {
            workspace = wide_bytes(layout.out.count());
            for (int i = 2; i < inputs; ++i)
                if (in[i].present()) workspace += wide_bytes(in[i].count());
        }
        flops = layout.flops();
        algorithm = name();
    }

    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        char* at = static_cast<char*>(context.workspace);
        Epilogue e;
        e.activation = activation_;
        e.row_bias = inputs_ > 2 ? floats(in[2], at) : nullptr;
        e.residual = inputs_ > 3 ? floats(in[3], at) : nullptr;
        e.ldr = layout_.window.out_size();
        auto made = weights_;
        if (!made && (is_narrow<T> || way_ >= Way::Frames)) made = make_weights<T>(in[1], layout_.groups, way_);
        if constexpr (is_narrow<T>) {
            float* wide = reinterpret_cast<float*>(at);
            compute(context.threads, in[0].as<T>(), made->rows.data(), made.get(), wide, e);
            narrow(wide, out[0].as<T>(), layout_.out.count());
        } else {
            compute(context.threads, in[0].as<T>(), in[1].as<float>(), made.get(), out[0].as<float>(), e);
        }
    }

  private:
    const char* name() const {
        switch (way_) {
            case Way::Depthwise: return "depthwise";
            case Way::Dot: return "dot";
            case Way::Frames: return "gemm of frames";
            case Way::Few: return "gemm of positions";
            default: return layout_.window.pointwise() ? "pointwise gemm" : "implicit gemm";
        }
    }
    static size_t wide_bytes(int64_t count) { return static_cast<size_t>(round_up(count, 16)) * 4; }
    static const float* floats(const Tensor& t, char*& at) {
        if constexpr (is_narrow<T>) {
            if (!t.present()) return nullptr;
            float* wide = reinterpret_cast<float*>(at);
            at += wide_bytes(t.count());
            widen(t.as<T>(), wide, t.count());
            return wide;
        }
        return t.as<float>();
    }
    void compute(int threads, const T* x, const float* rows, const ConvWeights* made, float* y, const Epilogue& e) const {
        if (way_ == Way::Depthwise) return depthwise_->run(x, rows, y, e, layout_.flops() < 1e5 ? 1 : threads);
        const ConvLayout& l = layout_;
        const int64_t size = l.window.out_size();
        if (size == 0) return;
        for_each_batch(threads, l.batch * l.groups, l.flops(), [&](int64_t i, int use) {
            const int64_t g = i % l.groups;
            Epilogue part = e;
            if (e.row_bias) part.row_bias += g * l.oc;
            if (e.residual) part.residual += i * l.oc * size;
            if constexpr (!is_narrow<T>)
                if (way_ == Way::Frames) return frames(x + i * l.window.in_size(), made->right[static_cast<size_t>(g)], y + i * l.oc * size, part, use);
            const Columns<T, float> columns(l.window, x + i * l.ic * l.window.in_size(), 0.f);
            float* to = y + i * l.oc * size;
            if (way_ == Way::Dot) return dot(columns, rows + g * l.oc * l.depth(), to, part, use);
            if (way_ == Way::Few) return few(columns, made->right[static_cast<size_t>(g)], to, part, use);
            gemm_filled(made->left[static_cast<size_t>(g)], size, [&](int64_t k0, int64_t k1, int64_t n0, int64_t n1, float* block, int64_t ld) {
                columns.fill(k0, k1, n0, n1, block, ld);
            }, to, size, part, use);
        });
    }
    void dot(const Columns<T, float>& columns, const float* rows, float* y, const Epilogue& e, int threads) const {
        const int64_t k = layout_.depth();
        float* column = static_cast<float*>(scratch(1, static_cast<size_t>(k) * 4));
        columns.fill(0, k, 0, 1, column, 1);
        gemv(layout_.oc, k, rows, k, column, y, 1, e, threads);
    }
    void frames(const float* x, const PackedB& weights, float* y, const Epilogue& e, int threads) const {
        const Axis& w = layout_.window.axis[2];
        const int64_t n = w.out, oc = layout_.oc;
        if (w.pad != 0 || w.start(n - 1) + w.kernel > w.in) {
            const int64_t size = (n - 1) * w.stride + w.kernel, count = std::clamp<int64_t>(w.in, 0, size - w.pad);
            float* padded = static_cast<float*>(scratch(1, static_cast<size_t>(size) * 4));
            std::fill(padded, padded + w.pad, 0.f);
            std::copy(x, x + count, padded + w.pad);
            std::fill(padded + w.pad + count, padded + size, 0.f);
            x = padded;
        }
        float* result = static_cast<float*>(scratch(2, static_cast<size_t>(n * oc) * 4));
        gemm(n, oc, w.kernel, x, w.stride, weights.view(), result, oc, Epilogue{}, threads);
        transpose(result, oc, n, oc, y, n);
        if (!e.trivial()) apply_epilogue(e, oc, n, y, n);
    }
    // The columns of the window become rows, so does the result; the epilogue needs the final layout.
    void few(const Columns<T, float>& columns, const PackedB& weights, float* y, const Epilogue& e, int threads) const {
        const int64_t k = layout_.depth(), n = layout_.window.out_size();
        float* rows = static_cast<float*>(scratch(1, static_cast<size_t>(k * n) * 4));
        float* result = static_cast<float*>(scratch(2, static_cast<size_t>(n * layout_.oc) * 4));
        alignas(64) float block[kDepthBlock * kPanel];
        for (int64_t k0 = 0; k0 < k; k0 += kDepthBlock) {
            const int64_t k1 = std::min(k, k0 + kDepthBlock);
            columns.fill(k0, k1, 0, n, block, kPanel);
            transpose(block, kPanel, k1 - k0, n, rows + k0, k);
        }
        gemm(n, layout_.oc, k, rows, k, weights.view(), result, layout_.oc, Epilogue{}, threads);
        transpose(result, layout_.oc, n, layout_.oc, y, n);
        if (!e.trivial()) apply_epilogue(e, layout_.oc, n, y, n);
    }
    static constexpr int64_t kDepthBlock = 64;
    ConvLayout layout_;
    Way way_;
    ActivationSpec activation_;
    std::shared_ptr<const ConvWeights> weights_;
    int inputs_;
    std::unique_ptr<Depthwise> depthwise_;
};

// float64: for each output channel, each tap adds a scaled row of the input to a row of the output.
class PlainConv final : public Prepared {
  public:
    PlainConv(const ConvLayout& layout, int inputs) : layout_(layout), inputs_(inputs) {
        flops = layout.flops();
        algorithm = "plain loops";
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const ConvLayout& l = layout_;
        const int64_t size = l.window.out_size(), channels = l.groups * l.oc;
        const double *x = in[0].as<double>(), *w = in[1].as<double>();
        const double* bias = inputs_ > 2 ? in[2].as<double>() : nullptr;
        const double* residual = inputs_ > 3 ? in[3].as<double>() : nullptr;
        parallel_ranges(context.threads, l.batch * channels, 1, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                double* y = out[0].as<double>() + i * size;
                std::fill(y, y + size, bias ? bias[i % channels] : 0.0);
                if (residual)
                    for (int64_t j = 0; j < size; ++j) y[j] += residual[i * size + j];
                for (int64_t c = 0; c < l.ic; ++c)
                    add_channel(x + (i / l.oc * l.ic + c) * l.window.in_size(), w + (i % channels * l.ic + c) * l.window.taps(), y);
            }
        });
    }

  private:
    void add_channel(const double* x, const double* w, double* y) const {
        const Axis &d = layout_.window.axis[0], &h = layout_.window.axis[1], &row = layout_.window.axis[2];
        for (int64_t oz = 0; oz < d.out; ++oz)
            for (int64_t oy = 0; oy < h.out; ++oy, y += row.out)
                for (int64_t kz = d.first_tap(oz); kz < d.end_tap(oz); ++kz)
                    for (int64_t ky = h.first_tap(oy); ky < h.end_tap(oy); ++ky)
                        add_row(x + ((d.start(oz) + kz * d.dilation) * h.in + h.start(oy) + ky * h.dilation) * row.in, w + (kz * h.kernel + ky) * row.kernel, y);
    }
    void add_row(const double* x, const double* w, double* y) const {
        const Axis& row = layout_.window.axis[2];
        for (int64_t k = 0; k < row.kernel; ++k) {
            const int64_t at = k * row.dilation - row.pad;
            const int64_t first = at < 0 ? ceil_div(-at, row.stride) : 0;
            const int64_t end = at >= row.in ? 0 : std::min(row.out, (row.in - 1 - at) / row.stride + 1);
            for (int64_t o = first; o < end; ++o) y[o] += w[k] * x[o * row.stride + at];
        }
    }
    ConvLayout layout_;
    int inputs_;
};

class ConvKernel final : public Kernel {
  public:
    ConvKernel(const NodeSpec& s, bool fused)
        : attrs_(s.attrs), groups_(s.attrs.integer("group", 1)), inputs_(std::min(static_cast<int>(s.inputs.size()), fused ? 4 : 3)),
          activation_(fused ? activation_of(s.attrs) : ActivationSpec{}), store_(operand(s), checked_groups(s)) {
        if (!s.has_input(0)) throw BadOperand("the input is missing");
        if (s.inputs[0].rank > 5) throw Unsupported("convolution over more than three spatial axes");
        visit<FloatTypes>(s.inputs[0].dtype, [](auto) { return 0; });
        if (s.inputs[0].dtype == DType::F64 && activation_.kind != Activation::None) throw Unsupported("a fused convolution of float64");
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const DType dtype = in[0].dtype();
        if (in[1].dtype() != dtype) throw BadOperand(std::string("the input is ") + name_of(dtype) + ", the weights are " + name_of(in[1].dtype()));
        const ConvLayout l = conv_layout(attrs_, groups_, in[0].shape(), in[1].shape());
        if (inputs_ > 2) check_bias(in[2], dtype, in[1].shape()[0]);
        if (inputs_ > 3 && in[3].present() && (in[3].dtype() != dtype || in[3].shape() != l.out))
            throw BadOperand("the residual " + in[3].shape().str() + " differs from the output " + l.out.str());
        out[0] = {dtype, l.out};
        return visit<FloatTypes>(dtype, [&](auto type) -> std::unique_ptr<Prepared> {
            using T = decltype(type);
            if constexpr (std::is_same_v<T, double>) return std::make_unique<PlainConv>(l, inputs_);
            else return std::make_unique<FloatConv<T>>(l, activation_, store_, in, inputs_);
        });
    }

  private:
    static const Operand& operand(const NodeSpec& s) {
        if (!s.has_input(1)) throw BadOperand("the weights are missing");
        return s.inputs[1];
    }
    static int64_t checked_groups(const NodeSpec& s) {
        const int64_t groups = s.attrs.integer("group", 1);
        if (groups < 1) throw BadOperand("group is " + std::to_string(groups));
        return groups;
    }
    WindowAttrs attrs_;
    int64_t groups_;
    int inputs_;
    ActivationSpec activation_;
    WeightStore store_;
};

}  // namespace

void register_conv(Registry& r) {
    r.add("Conv", [](const NodeSpec& s) { return std::make_unique<ConvKernel>(s, false); });
    r.add("FusedConv", [](const NodeSpec& s) { return std::make_unique<ConvKernel>(s, true); }, "opweave");
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
