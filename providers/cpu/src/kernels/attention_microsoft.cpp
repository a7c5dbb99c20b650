// com.microsoft.MultiHeadAttention and com.microsoft.Attention in float32, around the engine of attention.h. Padding masks
// are added as mask_filter_value, as ONNX Runtime does, so that a row whose keys are all padding is an average.
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
#include <cmath>

#include "kernels/attention.h"
#include "kernels/product.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

struct Settings {
    int64_t heads = 0;
    double scale = 0;  // 0: 1 / sqrt(size)
    float filter = -10000;
    bool causal = false;
    explicit Settings(const Attrs& a)
        : heads(a.integer("num_heads", 0)), scale(a.real("scale", 0)), filter(static_cast<float>(a.real("mask_filter_value", -10000))),
          causal(a.integer("unidirectional", 0) != 0) {
        if (heads <= 0) throw BadOperand("num_heads is " + std::to_string(heads));
    }
};

AttentionTask make_task(const Settings& s, const HeadShape& q, const HeadShape& k, const HeadShape& v, int64_t past) {
    AttentionTask t;
    t.samples = q.samples, t.heads = q.heads, t.kv_heads = k.heads, t.queries = q.length, t.keys = past + k.length;
    t.size = q.size, t.value_size = v.size;
    t.scale = static_cast<float>(s.scale != 0 ? s.scale : 1 / std::sqrt(static_cast<double>(std::max<int64_t>(q.size, 1))));
    t.causal = s.causal;
    t.offset.assign(static_cast<size_t>(t.samples), past);
    t.visible.assign(static_cast<size_t>(t.samples), t.keys);
    return t;
}

void expect_type(const Tensor& t, DType wanted, const char* name) {
    if (t.dtype() != wanted) throw BadOperand(std::string(name) + " is " + name_of(t.dtype()) + ", expected " + name_of(wanted));
}

// Shapes of a padding mask: [samples] lengths, [samples, keys], [samples, queries, keys].
void check_padding(const Tensor& t, const AttentionTask& task) {
    const Shape& s = t.shape();
    expect_type(t, DType::I32, "the padding mask");
    if (s == Shape{task.samples} || s == Shape{task.samples, task.keys} || s == Shape{task.samples, task.queries, task.keys}) return;
    if (s.rank == 1 || s.rank == 4) throw Unsupported("a padding mask of shape " + s.str());
    throw BadOperand("a padding mask of shape " + s.str() + " does not fit " + std::to_string(task.keys) + " keys");
}
void check_bias(const Tensor& t, const AttentionTask& task) {
    const Shape& s = t.shape();
    expect_type(t, DType::F32, "the attention bias");
    const bool fits = s.rank == 4 && (s[0] == 1 || s[0] == task.samples) && (s[1] == 1 || s[1] == task.heads) && s[2] == task.queries && s[3] == task.keys;
    if (!fits) throw BadOperand("the attention bias has shape " + s.str());
}

// What is added to the scores: padding, bias, or their sum in `held`.
ScoreMask score_mask(const Tensor* padding, const Tensor* bias, const AttentionTask& t, float filter, std::vector<float>& held) {
    ScoreMask m;
    m.length = t.keys;
    if (bias) {
        m.bias = bias->as<float>();
        m.row = t.keys;
        m.head = bias->shape()[1] == 1 ? 0 : t.queries * t.keys;
        m.batch = bias->shape()[0] == 1 ? 0 : bias->shape()[1] * t.queries * t.keys;
    }
    if (!padding) return m;
    const int rank = padding->shape().rank;
    const int64_t heads = bias ? t.heads : 1, rows = bias || rank == 3 ? t.queries : 1;
    held.resize(static_cast<size_t>(t.samples * heads * rows * t.keys));
    float* to = held.data();
    for (int64_t b = 0; b < t.samples; ++b)
        for (int64_t h = 0; h < heads; ++h)
            for (int64_t i = 0; i < rows; ++i)
                for (int64_t j = 0; j < t.keys; ++j) {
                    const int32_t* p = padding->as<int32_t>();
                    const bool counts = rank == 1 ? j < p[b] : p[((rank == 3 ? b * t.queries + i : b)) * t.keys + j] != 0;
                    *to++ = (counts ? 0.f : filter) + (bias ? m.bias[b * m.batch + h * m.head + i * m.row + j] : 0.f);
                }
    return {held.data(), nullptr, heads * rows * t.keys, heads > 1 ? rows * t.keys : 0, rows > 1 ? t.keys : 0, t.keys};
}

// Keys or values after those of the past, in `present` or in `held`; as they are where there is neither.
Heads<const float> joined(const float* past, Heads<const float> fresh, const HeadShape& s, int64_t past_length, float* present, std::vector<float>& held) {
    if (!past && !present) return fresh;
    const int64_t length = past_length + s.length;
    if (!present) {
        held.resize(static_cast<size_t>(s.samples * s.heads * length * s.size));
        present = held.data();
    }
    const Heads<const char> bytes{reinterpret_cast<const char*>(fresh.data), fresh.batch * 4, fresh.head * 4, fresh.row * 4};
    append_rows(reinterpret_cast<const char*>(past), bytes, s, past_length, static_cast<size_t>(s.size) * 4, reinterpret_cast<char*>(present));
    return {present, s.heads * length * s.size, length * s.size, s.size};
}

// ---- MultiHeadAttention: projected operands, [samples, length, hidden]; keys and values may come as [samples, heads, ...].

enum : size_t { kQuery, kKey, kValue, kProjectionBias, kPadding, kScoreBias, kPastKey, kPastValue, kMhaInputs };

struct MhaPlan {
    AttentionTask task;
    HeadShape q, k, v;
    int64_t past = 0;
    float filter = 0;
    bool in[kMhaInputs] = {}, out[3] = {};
};

class MultiHead final : public Prepared {
  public:
    explicit MultiHead(MhaPlan plan) : p_(std::move(plan)) { flops = p_.task.flops(); }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        auto input = [&](size_t i) { return p_.in[i] ? &in[i] : nullptr; };
        auto data = [&](size_t i) { return p_.in[i] ? in[i].as<float>() : nullptr; };
        std::vector<float> held[3], caches[2], mask;
        const float* bias = data(kProjectionBias);
        const int64_t width = p_.q.heads * p_.q.size;
        AttentionTask t = p_.task;
        t.q = p_.q.over(biased(in[kQuery], bias, held[0]));
        const Heads<const float> k = p_.k.over(biased(in[kKey], bias ? bias + width : nullptr, held[1]));
        const Heads<const float> v = p_.v.over(biased(in[kValue], bias ? bias + 2 * width : nullptr, held[2]));
        t.k = joined(data(kPastKey), k, p_.k, p_.past, p_.out[1] ? out[1].as<float>() : nullptr, caches[0]);
        t.v = joined(data(kPastValue), v, p_.v, p_.past, p_.out[2] ? out[2].as<float>() : nullptr, caches[1]);
        t.y = HeadShape{t.samples, t.heads, t.queries, t.value_size, true}.over(out[0].as<float>());
        t.mask = score_mask(input(kPadding), input(kScoreBias), t, p_.filter, mask);
        attend(t, context.threads);
    }

  private:
    static const float* biased(const Tensor& t, const float* bias, std::vector<float>& held) {
        const float* x = t.as<float>();
        if (!bias) return x;
        const int64_t n = t.shape().back(), count = t.count();
        held.resize(static_cast<size_t>(count));
        for (int64_t i = 0; i < count; i += n)
            for (int64_t j = 0; j < n; ++j) held[static_cast<size_t>(i + j)] = x[i + j] + bias[j];
        return held.data();
    }
    MhaPlan p_;
};

class MultiHeadKernel final : public Kernel {
  public:
    explicit MultiHeadKernel(const NodeSpec& s) : settings_(s.attrs) {
        for (size_t i = 0; i < s.inputs.size(); ++i) {
            if (s.has_input(i) && i >= kMhaInputs) throw Unsupported("a shared cache");
            if (s.has_input(i)) plan_.in[i] = true;
        }
        for (size_t i = 0; i < 3; ++i) plan_.out[i] = s.has_output(i);
        if (s.has_output(3)) throw Unsupported("scores as an output");
        if (!plan_.in[kKey] || !plan_.in[kValue]) throw Unsupported("packed queries, keys and values");
        if (s.inputs[kQuery].dtype != DType::F32) throw Unsupported(std::string("attention of ") + name_of(s.inputs[kQuery].dtype));
        if (plan_.in[kPastKey] != plan_.in[kPastValue]) throw BadOperand("past_key and past_value come together");
        plan_.filter = settings_.filter;
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        MhaPlan p = plan_;
        for (size_t i : {kQuery, kKey, kValue})
            expect_type(in[i], DType::F32, "Q, K or V");
        if (in[kQuery].shape().rank != 3) throw Unsupported("queries of shape " + in[kQuery].shape().str());
        if (in[kKey].shape().rank == 5) throw Unsupported("packed keys and values");
        p.q = head_shape(in[kQuery].shape(), settings_.heads, "the query");
        p.k = head_shape(in[kKey].shape(), settings_.heads, "the key");
        p.v = head_shape(in[kValue].shape(), settings_.heads, "the value");
        if (p.k.samples != p.q.samples || p.v.samples != p.q.samples || p.k.length != p.v.length || p.k.size != p.q.size || p.k.heads != p.q.heads || p.v.heads != p.q.heads)
            throw BadOperand("query " + in[kQuery].shape().str() + ", key " + in[kKey].shape().str() + " and value " + in[kValue].shape().str() + " do not fit each other");
        if (p.in[kProjectionBias]) check_projection_bias(in[kProjectionBias], p);
        if (p.in[kPastKey]) p.past = past_length(in, p);
        p.task = make_task(settings_, p.q, p.k, p.v, p.past);
        if (p.in[kPadding]) check_padding(in[kPadding], p.task);
        if (p.in[kScoreBias]) check_bias(in[kScoreBias], p.task);
        out[0] = {DType::F32, {p.q.samples, p.q.length, p.v.heads * p.v.size}};
        if (p.out[1]) out[1] = {DType::F32, p.k.as_cache(p.past)};
        if (p.out[2]) out[2] = {DType::F32, p.v.as_cache(p.past)};
        return std::make_unique<MultiHead>(std::move(p));
    }

  private:
    static void check_projection_bias(const Tensor& bias, const MhaPlan& p) {
        expect_type(bias, DType::F32, "the bias");
        if (!p.k.packed || !p.v.packed) throw Unsupported("a bias of keys in the form of a cache");
        if (bias.shape() != Shape{2 * p.q.heads * p.q.size + p.v.heads * p.v.size}) throw BadOperand("the bias has shape " + bias.shape().str());
    }
    static int64_t past_length(const Tensor* in, const MhaPlan& p) {
        const Shape &k = in[kPastKey].shape(), &v = in[kPastValue].shape();
        expect_type(in[kPastKey], DType::F32, "past_key");
        expect_type(in[kPastValue], DType::F32, "past_value");
        if (k.rank != 4 || k != Shape{p.k.samples, p.k.heads, k[2], p.k.size} || v != Shape{p.v.samples, p.v.heads, k[2], p.v.size})
            throw BadOperand("past_key " + k.str() + " and past_value " + v.str() + " do not fit the key and the value");
        return k[2];
    }
    Settings settings_;
    MhaPlan plan_;
};

// ---- Attention: the projection to queries, keys and values belongs to it.

enum : size_t { kInput, kWeights, kBias, kMaskIndex, kPast, kAttentionBias, kAttentionInputs };

struct SelfPlan {
    AttentionTask task;
    HeadShape q, k, v;
    int64_t past = 0, width = 0, inner = 0;  // columns of the projection, columns of the input
    float filter = 0;
    bool in[kAttentionInputs] = {}, present = false;
    std::shared_ptr<const PackedB> packed;
};

class SelfAttention final : public Prepared {
  public:
    explicit SelfAttention(SelfPlan plan) : p_(std::move(plan)) {
        const double rows = static_cast<double>(p_.q.samples * p_.q.length);
        flops = p_.task.flops() + 2 * rows * static_cast<double>(p_.width) * static_cast<double>(p_.inner);
        workspace = static_cast<size_t>(p_.q.samples * p_.q.length * p_.width) * 4;
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        float* projected = static_cast<float*>(context.workspace);
        project(in, projected, context.threads);
        auto input = [&](size_t i) { return p_.in[i] ? &in[i] : nullptr; };
        const int64_t batch = p_.q.length * p_.width, hidden = p_.q.heads * p_.q.size;
        const float* past = p_.in[kPast] ? in[kPast].as<float>() : nullptr;
        float* present = p_.present ? out[1].as<float>() : nullptr;
        const int64_t past_half = p_.k.samples * p_.k.heads * p_.past * p_.k.size, half = p_.k.as_cache(p_.past).count();
        std::vector<float> caches[2], mask;
        AttentionTask t = p_.task;
        t.q = {projected, batch, p_.q.size, p_.width};
        t.k = joined(past, {projected + hidden, batch, p_.k.size, p_.width}, p_.k, p_.past, present, caches[0]);
        t.v = joined(past ? past + past_half : nullptr, {projected + 2 * hidden, batch, p_.v.size, p_.width}, p_.v, p_.past, present ? present + half : nullptr, caches[1]);
        t.y = HeadShape{t.samples, t.heads, t.queries, t.value_size, true}.over(out[0].as<float>());
        t.mask = score_mask(input(kMaskIndex), input(kAttentionBias), t, p_.filter, mask);
        attend(t, context.threads);
    }

  private:
    void project(const Tensor* in, float* to, int threads) const {
        const int64_t rows = p_.q.samples * p_.q.length;
        Epilogue e;
        if (p_.in[kBias]) e.column_bias = in[kBias].as<float>();
        const FloatMatrix x{in[kInput].as<float>(), {p_.inner, 1}};
        if (p_.packed) product(rows, x, *p_.packed, to, p_.width, e, threads);
        else product(rows, p_.width, p_.inner, x, {in[kWeights].as<float>(), {p_.width, 1}}, to, p_.width, e, threads);
    }
    SelfPlan p_;
};

class SelfAttentionKernel final : public Kernel {
  public:
    explicit SelfAttentionKernel(const NodeSpec& s) : settings_(s.attrs), sizes_(s.attrs.integers("qkv_hidden_sizes")) {
        for (size_t i = 0; i < s.inputs.size(); ++i) {
            if (s.has_input(i) && i >= kAttentionInputs) throw Unsupported("a shared cache");
            if (s.has_input(i)) plan_.in[i] = true;
        }
        if (!plan_.in[kInput] || !plan_.in[kWeights]) throw BadOperand("the input or the weights are missing");
        if (s.inputs[kInput].dtype != DType::F32) throw Unsupported(std::string("attention of ") + name_of(s.inputs[kInput].dtype));
        if (s.attrs.integer("do_rotary", 0) != 0) throw Unsupported("rotary embedding inside attention");
        plan_.present = s.has_output(1);
        plan_.filter = settings_.filter;
        const Operand& w = s.inputs[kWeights];
        if (w.constant && w.shape.rank == 2 && w.shape.count() > 0)
            plan_.packed = packed_as<PackedB>(w.key, "gemm-b" + std::to_string(kPanel) + "single" + w.shape.str(), [&] {
                return std::make_shared<PackedB>(pack_b(w.constant->as<float>(), w.shape[1], 1, w.shape[0], w.shape[1]));
            });
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        SelfPlan p = plan_;
        const Shape &x = in[kInput].shape(), &w = in[kWeights].shape();
        expect_type(in[kWeights], DType::F32, "the weights");
        if (x.rank != 3 || w.rank != 2 || w[0] != x[2]) throw BadOperand("input " + x.str() + " and weights " + w.str() + " do not fit");
        p.inner = x[2];
        p.width = w[1];
        split(x, p);
        if (p.in[kBias]) {
            expect_type(in[kBias], DType::F32, "the bias");
            if (in[kBias].shape() != Shape{p.width}) throw BadOperand("the bias has shape " + in[kBias].shape().str());
        }
        if (p.in[kPast]) p.past = past_length(in[kPast], p);
        p.task = make_task(settings_, p.q, p.k, p.v, p.past);
        if (p.in[kMaskIndex]) check_padding(in[kMaskIndex], p.task);
        if (p.in[kAttentionBias]) check_bias(in[kAttentionBias], p.task);
        out[0] = {DType::F32, {x[0], x[1], p.v.heads * p.v.size}};
        if (p.present) out[1] = {DType::F32, {2, p.k.samples, p.k.heads, p.past + p.k.length, p.k.size}};
        return std::make_unique<SelfAttention>(std::move(p));
    }

  private:
    // The columns of the projection: queries, keys, values; thirds where nothing is said.
    void split(const Shape& x, SelfPlan& p) const {
        std::vector<int64_t> sizes = sizes_;
        if (sizes.empty()) sizes.assign(3, p.width / 3);
        if (sizes.size() != 3 || sizes[0] != sizes[1] || sizes[0] < 0 || sizes[2] < 0 || sizes[0] + sizes[1] + sizes[2] != p.width)
            throw BadOperand("qkv_hidden_sizes do not add up to the " + std::to_string(p.width) + " columns of the weights");
        p.q = head_shape({x[0], x[1], sizes[0]}, settings_.heads, "the query");
        p.k = p.q;
        p.v = head_shape({x[0], x[1], sizes[2]}, settings_.heads, "the value");
        if ((p.in[kPast] || p.present) && p.v.size != p.k.size) throw BadOperand("a cache needs keys and values of one size");
    }
    static int64_t past_length(const Tensor& past, const SelfPlan& p) {
        const Shape& s = past.shape();
        expect_type(past, DType::F32, "the past");
        if (s.rank != 5 || s != Shape{2, p.k.samples, p.k.heads, s[3], p.k.size}) throw BadOperand("the past has shape " + s.str());
        return s[3];
    }
    Settings settings_;
    std::vector<int64_t> sizes_;
    SelfPlan plan_;
};

}  // namespace

void register_attention_microsoft(Registry& r) {
    r.add("MultiHeadAttention", [](const NodeSpec& s) { return std::make_unique<MultiHeadKernel>(s); }, "com.microsoft");
    r.add("Attention", [](const NodeSpec& s) { return std::make_unique<SelfAttentionKernel>(s); }, "com.microsoft");
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
