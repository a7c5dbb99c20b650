// The operator Attention: layouts, caches and element types around the engine of attention.h. Everything is computed in
// float32, whatever softmax_precision says: scores and results are no wider.
// https://onnx.ai/onnx/operators/onnx__Attention.html
#include "kernels/attention.h"

#include <cmath>
#include <cstring>

#include "kernels/broadcast.h"
#include "kernels/cast.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

enum : size_t { kQ, kK, kV, kMask, kPastKey, kPastValue, kVisible, kInputs };
enum : size_t { kY, kPresentKey, kPresentValue, kScores, kOutputs };

struct AttentionSpec {
    int64_t heads = 0, kv_heads = 0;  // of operands with three dimensions
    double scale = 0;                 // 0: 1 / sqrt(size)
    float softcap = 0;
    bool causal = false;
    int64_t left = -1, right = -1;
    ScoreOutput stage = ScoreOutput::Raw;
    bool has_input[kInputs] = {}, has_output[kOutputs] = {};
};

// float32 of a tensor: its own data, or converted into `held`.
const float* floats(const TensorDesc& desc, const void* data, std::vector<float>& held) {
    if (desc.dtype == DType::F32) return static_cast<const float*>(data);
    held.resize(static_cast<size_t>(desc.count()));
    Converter(desc.dtype, DType::F32)(data, held.data(), desc.count());
    return held.data();
}

// An output that is computed in float32.
class FloatOutput {
  public:
    explicit FloatOutput(const Tensor* out) : out_(out) {
        if (out && out->dtype() != DType::F32) held_.resize(static_cast<size_t>(out->count()));
    }
    float* data() { return !out_ ? nullptr : out_->dtype() == DType::F32 ? out_->as<float>() : held_.data(); }
    void finish() const {
        if (out_ && out_->dtype() != DType::F32) Converter(DType::F32, out_->dtype())(held_.data(), out_->data, out_->count());
    }

  private:
    const Tensor* out_;
    std::vector<float> held_;
};

// The keys or values that a call attends to, in float32.
class Cache {
  public:
    Cache(const Tensor* past, const Tensor& fresh, const Tensor* present, const HeadShape& s, int64_t past_length) {
        if (!past && !present) {
            heads = s.over(floats(fresh.desc, fresh.data, wide_));
            return;
        }
        const TensorDesc desc{fresh.dtype(), s.as_cache(past_length)};
        if (!present) joined_.resize(desc.nbytes());
        char* data = present ? present->as<char>() : joined_.data();
        const int64_t width = static_cast<int64_t>(size_of(fresh.dtype()));
        Heads<const char> from = s.over(static_cast<const char*>(fresh.data));
        from.batch *= width, from.head *= width, from.row *= width;
        append_rows(past ? past->as<char>() : nullptr, from, s, past_length, static_cast<size_t>(s.size * width), data);
        const int64_t length = past_length + s.length;
        heads = {floats(desc, data, wide_), s.heads * length * s.size, length * s.size, s.size};
    }
    Heads<const float> heads;

  private:
    std::vector<char> joined_;
    std::vector<float> wide_;
};

class Attention final : public Prepared {
  public:
    Attention(const AttentionSpec& spec, AttentionTask task, HeadShape q, HeadShape k, HeadShape v, int64_t past)
        : spec_(spec), task_(std::move(task)), q_(q), k_(k), v_(v), past_(past) {
        flops = task_.flops();
        algorithm = "strips of query rows";
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        auto input = [&](size_t i) { return spec_.has_input[i] ? &in[i] : nullptr; };
        auto output = [&](size_t i) { return spec_.has_output[i] ? &out[i] : nullptr; };
        const Cache keys(input(kPastKey), in[kK], output(kPresentKey), k_, past_);
        const Cache values(input(kPastValue), in[kV], output(kPresentValue), v_, past_);
        std::vector<float> wide_q, wide_mask;
        FloatOutput y(&out[kY]), scores(output(kScores));
        AttentionTask t = task_;
        t.q = q_.over(floats(in[kQ].desc, in[kQ].data, wide_q));
        t.k = keys.heads;
        t.v = values.heads;
        t.y = HeadShape{q_.samples, q_.heads, q_.length, v_.size, q_.packed}.over(y.data());
        t.scores = scores.data();
        if (const Tensor* mask = input(kMask)) {
            if (mask->dtype() == DType::Bool) t.mask.allowed = mask->as<uint8_t>();
            else t.mask.bias = floats(mask->desc, mask->data, wide_mask);
        }
        place(t, input(kVisible));
        attend(t, context.threads);
        y.finish();
        scores.finish();
    }

  private:
    // Where queries stand among the keys, and how many keys count.
    void place(AttentionTask& t, const Tensor* visible) const {
        const size_t n = static_cast<size_t>(t.samples);
        t.offset.assign(n, past_);
        t.visible.assign(n, t.keys);
        for (size_t b = 0; visible && b < n; ++b) {
            const int64_t count = visible->as<int64_t>()[b];
            if (count < 0 || count > t.keys) throw BadOperand("nonpad_kv_seqlen holds " + std::to_string(count) + " of " + std::to_string(t.keys) + " keys");
            t.visible[b] = count;
            t.offset[b] = count - t.queries;
        }
    }
    AttentionSpec spec_;
    AttentionTask task_;
    HeadShape q_, k_, v_;
    int64_t past_;
};

bool is_float(DType t) { return t == DType::F32 || t == DType::F16 || t == DType::BF16; }

class AttentionKernel final : public Kernel {
  public:
    explicit AttentionKernel(const NodeSpec& s) {
        for (size_t i = 0; i < kInputs; ++i) a_.has_input[i] = s.has_input(i);
        for (size_t i = 0; i < kOutputs; ++i) a_.has_output[i] = s.has_output(i);
        for (size_t i : {size_t{kQ}, size_t{kK}, size_t{kV}}) {
            if (!a_.has_input[i]) throw BadOperand("Q, K or V is missing");
            if (!is_float(s.inputs[i].dtype)) throw Unsupported(std::string("attention over ") + name_of(s.inputs[i].dtype));
        }
        if (a_.has_input[kMask] && s.inputs[kMask].dtype == DType::F64) throw Unsupported("a mask of float64");
        if (a_.has_input[kPastKey] != a_.has_input[kPastValue]) throw BadOperand("past_key and past_value come together");
        if (a_.has_input[kPastKey] && a_.has_input[kVisible]) throw BadOperand("nonpad_kv_seqlen excludes past_key and past_value");
        read_attributes(s.attrs);
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const HeadShape q = head_shape(in[kQ].shape(), a_.heads, "Q"), k = head_shape(in[kK].shape(), a_.kv_heads, "K"), v = head_shape(in[kV].shape(), a_.kv_heads, "V");
        if (q.packed != k.packed || k.packed != v.packed) throw BadOperand("Q, K and V differ in rank");
        if (k.samples != q.samples || v.samples != q.samples || k.heads != v.heads || k.length != v.length || k.size != q.size)
            throw BadOperand("Q " + in[kQ].shape().str() + ", K " + in[kK].shape().str() + " and V " + in[kV].shape().str() + " do not fit each other");
        if (q.heads > 0 && (k.heads == 0 || q.heads % k.heads != 0)) throw BadOperand(std::to_string(q.heads) + " query heads share " + std::to_string(k.heads) + " key heads");
        const int64_t past = a_.has_input[kPastKey] ? past_length(in, k, v) : 0;
        AttentionTask t = task(in, q, k, v, past);
        out[kY] = {in[kQ].dtype(), q.packed ? Shape{q.samples, q.length, q.heads * v.size} : Shape{q.samples, q.heads, q.length, v.size}};
        if (a_.has_output[kPresentKey]) out[kPresentKey] = {in[kK].dtype(), k.as_cache(past)};
        if (a_.has_output[kPresentValue]) out[kPresentValue] = {in[kV].dtype(), v.as_cache(past)};
        if (a_.has_output[kScores]) out[kScores] = {in[kQ].dtype(), {q.samples, q.heads, q.length, t.keys}};
        return std::make_unique<Attention>(a_, std::move(t), q, k, v, past);
    }

  private:
    void read_attributes(const Attrs& attrs) {
        const int64_t far = int64_t{1} << 40;
        a_.heads = attrs.integer("q_num_heads", 0);
        a_.kv_heads = attrs.integer("kv_num_heads", 0);
        a_.scale = attrs.real("scale", 0);
        a_.softcap = static_cast<float>(attrs.real("softcap", 0));
        a_.causal = attrs.integer("is_causal", 0) != 0;
        a_.left = std::min(far, attrs.integer("left_window_size", -1));
        a_.right = std::min(far, attrs.integer("right_window_size", -1));
        if (a_.left < -1 || a_.right < -1) throw BadOperand("a window size is under -1");
        const int64_t stage = attrs.integer("qk_matmul_output_mode", 0);
        if (stage < 0 || stage > 3) throw BadOperand("qk_matmul_output_mode is " + std::to_string(stage));
        a_.stage = static_cast<ScoreOutput>(stage);
    }
    int64_t past_length(const Tensor* in, const HeadShape& k, const HeadShape& v) const {
        const Shape &pk = in[kPastKey].shape(), &pv = in[kPastValue].shape();
        if (pk.rank != 4 || pv.rank != 4 || pk != Shape{k.samples, k.heads, pk[2], k.size} || pv != Shape{v.samples, v.heads, pk[2], v.size})
            throw BadOperand("past_key " + pk.str() + " and past_value " + pv.str() + " do not fit K and V");
        if (in[kPastKey].dtype() != in[kK].dtype() || in[kPastValue].dtype() != in[kV].dtype()) throw BadOperand("a cache differs in type from what is added to it");
        return pk[2];
    }
    AttentionTask task(const Tensor* in, const HeadShape& q, const HeadShape& k, const HeadShape& v, int64_t past) const {
        AttentionTask t;
        t.samples = q.samples, t.heads = q.heads, t.kv_heads = k.heads, t.queries = q.length, t.keys = past + k.length;
        t.size = q.size, t.value_size = v.size;
        t.scale = a_.scale != 0 ? static_cast<float>(a_.scale) : static_cast<float>(1 / std::sqrt(static_cast<double>(std::max<int64_t>(q.size, 1))));
        t.softcap = a_.softcap;
        t.causal = a_.causal, t.left = a_.left, t.right = a_.right, t.stage = a_.stage;
        if (a_.has_input[kMask]) t.mask = mask(in[kMask].shape(), t);
        if (a_.has_input[kVisible] && (in[kVisible].dtype() != DType::I64 || in[kVisible].shape() != Shape{t.samples})) throw BadOperand("nonpad_kv_seqlen must hold an int64 for each sample");
        return t;
    }
    static ScoreMask mask(const Shape& s, const AttentionTask& t) {
        if (s.rank < 1 || s.rank > 4 || s.back() > t.keys) throw BadOperand("the mask " + s.str() + " does not fit " + std::to_string(t.keys) + " keys");
        const int64_t wanted[] = {t.samples, t.heads, t.queries};
        int64_t strides[3] = {}, stride = s.back();
        for (int axis = 2, own = s.rank - 2; own >= 0; --axis, --own) {
            if (s[own] != 1 && s[own] != wanted[axis]) throw BadOperand("the mask " + s.str() + " does not broadcast to the scores");
            if (s[own] != 1) strides[axis] = stride;
            stride *= s[own];
        }
        return {nullptr, nullptr, strides[0], strides[1], strides[2], s.back()};
    }
    AttentionSpec a_;
};

}  // namespace

void register_attention(Registry& r) {
    r.add("Attention", [](const NodeSpec& s) { return std::make_unique<AttentionKernel>(s); });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
