// NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss (https://onnx.ai/onnx/operators/). Labels that equal ignore_index
// count as if their weight were zero; sums are taken in float64.
#include <algorithm>

#include "kernels/axes.h"
#include "kernels/dtypes.h"
#include "kernels/softmax.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

enum class Reduction { None, Sum, Mean };

struct LossSpec {
    bool softmax = false, weighted = false, ignoring = false, log_output = false;
    int64_t ignored = 0;
    Reduction reduction = Reduction::Mean;
    int64_t samples = 1, classes = 1, inner = 1;
};

template <class T> class RunLoss final : public Prepared {
    using A = wide_t<T>;

  public:
    explicit RunLoss(const LossSpec& spec) : spec_(spec) {
        const size_t elements = static_cast<size_t>(spec.samples * spec.classes * spec.inner);
        workspace = spec.softmax ? elements * sizeof(A) : 0;
        flops = static_cast<double>(elements) * (spec.softmax ? 12 : 1);
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        if (!spec_.softmax) return reduce(in, in[0].as<T>(), out[0].as<T>());
        A* logs = static_cast<A*>(context.workspace);
        log_softmax(context, in[0].as<T>(), logs);
        reduce(in, static_cast<const A*>(logs), out[0].as<T>());
        if (spec_.log_output) narrow(logs, out[1].as<T>(), in[0].count());
    }

  private:
    void log_softmax(const Context& context, const T* x, A* logs) const {
        const int64_t sample = spec_.classes * spec_.inner, tiles = (spec_.inner + kSoftmaxColumns - 1) / kSoftmaxColumns;
        widen(x, logs, spec_.samples * sample);
        parallel_ranges(context.threads, spec_.samples * tiles, 1 + (1 << 13) / std::max<int64_t>(1, sample), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end && sample > 0; ++i) {
                A* at = logs + i / tiles * sample + i % tiles * kSoftmaxColumns;
                const int64_t width = std::min(kSoftmaxColumns, spec_.inner - i % tiles * kSoftmaxColumns);
                if (spec_.inner == 1) softmax_row(SoftmaxKind::LogSoftmax, at, at, spec_.classes);
                else softmax_columns(SoftmaxKind::LogSoftmax, at, at, spec_.classes, spec_.inner, width);
            }
        });
    }
    int64_t label(const Tensor& labels, int64_t i) const {
        const int64_t c = labels.dtype() == DType::I32 ? labels.as<int32_t>()[i] : labels.as<int64_t>()[i];
        if (spec_.ignoring && c == spec_.ignored) return -1;
        if (c < 0 || c >= spec_.classes) throw BadOperand("label " + std::to_string(c) + " is outside " + std::to_string(spec_.classes) + " classes");
        return c;
    }
    template <class S> void reduce(const Tensor* in, const S* logs, T* y) const {
        double total = 0, weights = 0;
        for (int64_t i = 0; i < spec_.samples * spec_.inner; ++i) {
            const int64_t c = label(in[1], i), n = i / spec_.inner, d = i % spec_.inner;
            double weight = c < 0 ? 0 : 1, loss = 0;
            if (c >= 0 && spec_.weighted) weight = static_cast<double>(widen(in[2].as<T>()[c]));
            if (c >= 0) loss = -weight * static_cast<double>(widen(logs[(n * spec_.classes + c) * spec_.inner + d]));
            total += loss;
            weights += weight;
            if (spec_.reduction == Reduction::None) y[i] = narrow<T>(static_cast<A>(loss));
        }
        if (spec_.reduction == Reduction::Sum) *y = narrow<T>(static_cast<A>(total));
        if (spec_.reduction == Reduction::Mean) *y = narrow<T>(static_cast<A>(total / weights));
    }
    LossSpec spec_;
};

class Loss final : public Kernel {
  public:
    Loss(const NodeSpec& spec, bool softmax) {
        if (!spec.has_input(0) || !spec.has_input(1)) throw Unsupported("an input is missing");
        visit<FloatTypes>(spec.inputs[0].dtype, [](auto) {});
        const std::string reduction = spec.attrs.text("reduction", "mean");
        if (reduction != "none" && reduction != "sum" && reduction != "mean") throw Unsupported("the reduction '" + reduction + "'");
        spec_.reduction = reduction == "none" ? Reduction::None : reduction == "sum" ? Reduction::Sum : Reduction::Mean;
        spec_.softmax = softmax;
        spec_.weighted = spec.has_input(2);
        spec_.ignoring = spec.attrs.has("ignore_index");
        spec_.ignored = spec.attrs.integer("ignore_index", 0);
        spec_.log_output = softmax && spec.has_output(1);
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape& x = in[0].shape();
        if (x.rank < 2) throw BadOperand("the input has shape " + x.str() + ", it must have classes");
        Shape each{x[0]};
        for (int i = 2; i < x.rank; ++i) each.push_back(x[i]);
        if (in[1].shape() != each) throw BadOperand("labels " + in[1].shape().str() + " do not fit the input " + x.str());
        if (in[1].dtype() != DType::I32) expect_dtype(in[1], DType::I64, "labels");
        if (spec_.weighted) expect_dtype(in[2], in[0].dtype(), "weight");
        if (spec_.weighted && in[2].shape() != Shape{x[1]}) throw BadOperand("the weight must hold " + std::to_string(x[1]) + " values");
        LossSpec spec = spec_;
        spec.samples = x[0];
        spec.classes = x[1];
        spec.inner = x.count(2);
        out[0] = {in[0].dtype(), spec.reduction == Reduction::None ? each : Shape{}};
        if (spec.log_output) out[1] = in[0].desc;
        return visit<FloatTypes>(in[0].dtype(), [&](auto t) -> std::unique_ptr<Prepared> {
            return std::make_unique<RunLoss<decltype(t)>>(spec);
        });
    }

  private:
    LossSpec spec_;
};

}  // namespace

void register_loss(Registry& r) {
    r.add("NegativeLogLikelihoodLoss", [](const NodeSpec& s) { return std::make_unique<Loss>(s, false); });
    r.add("SoftmaxCrossEntropyLoss", [](const NodeSpec& s) { return std::make_unique<Loss>(s, true); });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
