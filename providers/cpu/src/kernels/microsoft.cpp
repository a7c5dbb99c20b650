// Operators of domain com.microsoft that exported models contain: forms of GELU, and layer normalisations of sums.
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
#include <cmath>

#include "kernels/dtypes.h"
#include "kernels/elementwise.h"
#include "kernels/elementwise_math.h"
#include "kernels/gemm.h"
#include "kernels/norm.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

const char* const kDomain = "com.microsoft";
using Reals = Types<float, double>;

struct Gelu {
    template <class X> X operator()(X x, const Params&) const { return vgelu(x); }
};
struct GeluTanh {
    template <class X> X operator()(X x, const Params&) const { return vgelu_tanh(x); }
};
struct QuickGelu {
    template <class X> X operator()(X x, const Params& p) const { return x * vsigmoid(x * value<X>(p.a)); }
};
template <class Op> struct OfSum {
    vf operator()(vf x, vf bias) const { return Op{}(x + bias, Params{}); }
    double operator()(double x, double bias) const { return Op{}(x + bias, Params{}); }
};

template <class Op> std::unique_ptr<Kernel> make_unary(const NodeSpec& s, Params p = {}) {
    const DType t = dtype_of_input(s, 0);
    return make_elementwise(s, plain_operation(t, visit<Reals>(compute_type(t), [](auto x) -> BlockFn { return unary_block<Op, decltype(x)>; }), p), 1);
}
template <class Op> std::unique_ptr<Kernel> make_of_sum(const NodeSpec& s) {
    const DType t = common_type(s);
    return make_elementwise(s, plain_operation(t, visit<Reals>(compute_type(t), [](auto x) -> BlockFn { return binary_block<OfSum<Op>, decltype(x)>; })), 2);
}

// Layer normalisation of input + skip + bias. Inputs: x, skip, gamma, beta (not the simplified one), bias; outputs: y,
// mean, 1 / deviation, the sum.
struct SkipSpec {
    bool simplified = false;  // divided by the root of the mean square, nothing subtracted
    float epsilon = 1e-12f;
    int beta = -1, bias = -1;
    bool outputs[4] = {};
};

// y = (x - mean) * inverse * gamma + beta; x may be y.
Statistics<float> normalize_row(const SkipSpec& s, const float* x, const float* gamma, const float* beta, int64_t n, float* y) {
    const Statistics<float> r = statistics<float>(x, n, !s.simplified, s.epsilon);
    affine(x, y, n, r, gamma, beta);
    return r;
}

template <class T> class SkipNormalization final : public Prepared {
  public:
    SkipNormalization(SkipSpec spec, int64_t rows, int64_t skip_rows, int64_t width) : spec_(spec), rows_(rows), skip_rows_(skip_rows), width_(width) {
        flops = 8.0 * static_cast<double>(rows * width);
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const int64_t n = width_;
        std::vector<float> parameters(static_cast<size_t>(3 * n));
        float *gamma = parameters.data(), *beta = gamma + n, *bias = beta + n;
        widen(in[2].as<T>(), gamma, n);
        if (spec_.beta >= 0) widen(in[spec_.beta].as<T>(), beta, n);
        if (spec_.bias >= 0) widen(in[spec_.bias].as<T>(), bias, n);
        parallel_ranges(context.threads, rows_, 1 + 8192 / std::max<int64_t>(n, 1), [&](int64_t begin, int64_t end) {
            float *sum = static_cast<float*>(scratch(2, static_cast<size_t>(2 * n) * 4)), *skip = sum + n;
            for (int64_t i = begin; i < end; ++i) {
                widen(in[0].as<T>() + i * n, sum, n);
                widen(in[1].as<T>() + i % skip_rows_ * n, skip, n);
                for (int64_t j = 0; j < n; ++j) sum[j] += skip[j] + bias[j];
                if (spec_.outputs[3]) narrow(sum, out[3].as<T>() + i * n, n);
                const Statistics<float> r = normalize_row(spec_, sum, gamma, beta, n, sum);
                narrow(sum, out[0].as<T>() + i * n, n);
                if (spec_.outputs[1]) out[1].as<float>()[i] = r.mean;
                if (spec_.outputs[2]) out[2].as<float>()[i] = r.inverse;
            }
        });
    }

  private:
    SkipSpec spec_;
    int64_t rows_, skip_rows_, width_;
};

class SkipKernel final : public Kernel {
  public:
    SkipKernel(const NodeSpec& s, bool simplified) {
        for (size_t i = 0; i < 3; ++i) dtype_of_input(s, i);
        visit<Types<float, f16, bf16>>(s.inputs[0].dtype, [](auto) { return 0; });
        spec_.simplified = simplified;
        spec_.epsilon = static_cast<float>(s.attrs.real("epsilon", 1e-12));
        if (!simplified && s.has_input(3)) spec_.beta = 3;
        if (s.has_input(simplified ? 3 : 4)) spec_.bias = simplified ? 3 : 4;
        for (size_t i = 0; i < 4; ++i) spec_.outputs[i] = s.has_output(i);
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape &x = in[0].shape(), &skip = in[1].shape();
        if (x.rank < 2) throw BadOperand("the input has shape " + x.str() + ", it must have rows");
        const int64_t n = x.back(), rows = x.count(0, x.rank - 1);
        check_skip(x, skip);
        for (int i : {1, 2, spec_.beta, spec_.bias}) {
            if (i < 0) continue;
            if (in[i].dtype() != in[0].dtype()) throw BadOperand("input " + std::to_string(i) + " is " + name_of(in[i].dtype()));
            if (i > 1 && in[i].shape() != Shape{n}) throw BadOperand("input " + std::to_string(i) + " must hold " + std::to_string(n) + " values");
        }
        Shape statistics = x;
        statistics[x.rank - 1] = 1;
        out[0] = in[0].desc;
        for (int i : {1, 2})
            if (spec_.outputs[i]) out[i] = {DType::F32, statistics};
        if (spec_.outputs[3]) out[3] = in[0].desc;
        return visit<Types<float, f16, bf16>>(in[0].dtype(), [&](auto type) -> std::unique_ptr<Prepared> {
            return std::make_unique<SkipNormalization<decltype(type)>>(spec_, rows, std::max<int64_t>(1, skip.count() / std::max<int64_t>(n, 1)), n);
        });
    }

  private:
    // As the input, or without its batch, or with a batch of one.
    static void check_skip(const Shape& x, const Shape& skip) {
        bool fits = skip.rank >= 2 && skip.rank <= x.rank;
        for (int i = 1; fits && i <= skip.rank; ++i) {
            const bool batch = i == x.rank && x.rank > 2 && skip[0] == 1;
            fits = skip[skip.rank - i] == x[x.rank - i] || batch;
        }
        if (!fits) throw BadOperand("skip " + skip.str() + " does not fit the input " + x.str());
    }
    SkipSpec spec_;
};

// EmbedLayerNormalization: word, position and segment embeddings, added up and normalised.
enum : size_t { kIds, kSegmentIds, kWords, kPositions, kSegments, kGamma, kBeta, kMask, kPositionIds, kEmbedInputs };

template <class T> class Embed final : public Prepared {
  public:
    Embed(const SkipSpec& spec, const bool* has) : spec_(spec) { std::copy(has, has + kEmbedInputs, has_); }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const int64_t length = in[kIds].shape()[1], n = in[kWords].shape()[1];
        std::vector<float> parameters(static_cast<size_t>(2 * n));
        widen(in[kGamma].as<T>(), parameters.data(), n);
        widen(in[kBeta].as<T>(), parameters.data() + n, n);
        parallel_ranges(context.threads, in[kIds].count(), 1 + 8192 / std::max<int64_t>(n, 1), [&](int64_t begin, int64_t end) {
            float *sum = static_cast<float*>(scratch(2, static_cast<size_t>(2 * n) * 4)), *part = sum + n;
            for (int64_t i = begin; i < end; ++i) {
                widen(row(in, kWords, in[kIds].as<int32_t>()[i]), sum, n);
                add(row(in, kPositions, position(in, i, length)), part, n, sum);
                if (has_[kSegmentIds]) add(row(in, kSegments, in[kSegmentIds].as<int32_t>()[i]), part, n, sum);
                if (spec_.outputs[2]) narrow(sum, out[2].as<T>() + i * n, n);
                normalize_row(spec_, sum, parameters.data(), parameters.data() + n, n, sum);
                narrow(sum, out[0].as<T>() + i * n, n);
            }
        });
        if (spec_.outputs[1]) count_mask(in, in[kIds].shape()[0], length, out[1].as<int32_t>());
    }

  private:
    static const T* row(const Tensor* in, size_t table, int64_t i) {
        const Shape& s = in[table].shape();
        if (i < 0 || i >= s[0]) throw BadOperand("index " + std::to_string(i) + " is outside an embedding of " + std::to_string(s[0]) + " rows");
        return in[table].as<T>() + i * s[1];
    }
    static void add(const T* x, float* wide, int64_t n, float* sum) {
        widen(x, wide, n);
        for (int64_t j = 0; j < n; ++j) sum[j] += wide[j];
    }
    int64_t position(const Tensor* in, int64_t i, int64_t length) const {
        if (!has_[kPositionIds]) return i % length;
        return in[kPositionIds].as<int32_t>()[in[kPositionIds].shape()[0] == 1 ? i % length : i];
    }
    void count_mask(const Tensor* in, int64_t samples, int64_t length, int32_t* counts) const {
        for (int64_t b = 0; b < samples; ++b) {
            counts[b] = 0;
            for (int64_t t = 0; has_[kMask] && t < length; ++t) counts[b] += in[kMask].as<int32_t>()[b * length + t] == 1;
        }
    }
    SkipSpec spec_;
    bool has_[kEmbedInputs];
};

class EmbedKernel final : public Kernel {
  public:
    explicit EmbedKernel(const NodeSpec& s) {
        for (size_t i = 0; i < kEmbedInputs; ++i) has_[i] = s.has_input(i);
        for (size_t i : {kIds, kWords, kPositions, kGamma, kBeta}) dtype_of_input(s, i);
        if (has_[kSegmentIds] != has_[kSegments]) throw BadOperand("segment ids and their embedding come together");
        visit<Types<float, f16>>(s.inputs[kWords].dtype, [](auto) { return 0; });
        spec_.epsilon = static_cast<float>(s.attrs.real("epsilon", 1e-12));
        for (size_t i = 0; i < 3; ++i) spec_.outputs[i] = s.has_output(i);
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape &ids = in[kIds].shape(), &words = in[kWords].shape();
        if (ids.rank != 2 || words.rank != 2) throw BadOperand("ids " + ids.str() + " and word embedding " + words.str() + " must be matrices");
        const DType type = in[kWords].dtype();
        for (size_t i : {kPositions, kSegments})
            if (has_[i] && (in[i].dtype() != type || in[i].shape().rank != 2 || in[i].shape()[1] != words[1])) throw BadOperand("an embedding has shape " + in[i].shape().str());
        for (size_t i : {kGamma, kBeta})
            if (in[i].dtype() != type || in[i].shape() != Shape{words[1]}) throw BadOperand("gamma and beta must hold " + std::to_string(words[1]) + " values");
        for (size_t i : {kIds, kSegmentIds, kMask, kPositionIds})
            if (has_[i] && (in[i].dtype() != DType::I32 || (in[i].shape() != ids && !(i == kPositionIds && in[i].shape() == Shape{1, ids[1]}))))
                throw BadOperand("input " + std::to_string(i) + " must be int32 of shape " + ids.str());
        out[0] = {type, {ids[0], ids[1], words[1]}};
        if (spec_.outputs[1]) out[1] = {DType::I32, {ids[0]}};
        if (spec_.outputs[2]) out[2] = out[0];
        return visit<Types<float, f16>>(type, [&](auto t) -> std::unique_ptr<Prepared> { return std::make_unique<Embed<decltype(t)>>(spec_, has_); });
    }

  private:
    SkipSpec spec_;
    bool has_[kEmbedInputs] = {};
};

}  // namespace

void register_microsoft(Registry& r) {
    r.add("Gelu", [](const NodeSpec& s) { return make_unary<Gelu>(s); }, kDomain);
    r.add("QuickGelu", [](const NodeSpec& s) { return make_unary<QuickGelu>(s, {s.attrs.real("alpha", 1.702), 0}); }, kDomain);
    r.add("BiasGelu", make_of_sum<Gelu>, kDomain);
    r.add("FastGelu", [](const NodeSpec& s) { return s.has_input(1) ? make_of_sum<GeluTanh>(s) : make_unary<GeluTanh>(s); }, kDomain);
    r.add("SkipLayerNormalization", [](const NodeSpec& s) { return std::make_unique<SkipKernel>(s, false); }, kDomain);
    r.add("EmbedLayerNormalization", [](const NodeSpec& s) { return std::make_unique<EmbedKernel>(s); }, kDomain);
    r.add("SkipSimplifiedLayerNormalization", [](const NodeSpec& s) { return std::make_unique<SkipKernel>(s, true); }, kDomain);
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
