// LinearRegressor of ai.onnx.ml (https://onnx.ai/onnx/operators/onnx_aionnxml_LinearRegressor.html): one matrix product,
// in float32, or in float64 for float64 rows.
#include <algorithm>

#include "kernels/forest.h"
#include "kernels/product.h"
#include "kernels/rows.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

struct LinearSpec {
    std::vector<double> coefficients, intercepts;  // [targets][features]; of each target
    int64_t targets = 1;
    Transform transform = Transform::None;
};

template <class A> class RunLinear final : public Prepared {
  public:
    RunLinear(const LinearSpec& spec, int64_t rows, int64_t width)
        : rows_(rows), width_(width), targets_(spec.targets), transform_(spec.transform),
          coefficients_(spec.coefficients.begin(), spec.coefficients.end()), intercepts_(spec.intercepts.begin(), spec.intercepts.end()) {
        workspace = sizeof(A) * static_cast<size_t>(rows * (width + targets_));
        flops = 2.0 * static_cast<double>(rows * targets_) * static_cast<double>(width);
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        A *scores = static_cast<A*>(context.workspace), *copy = scores + rows_ * targets_;
        const A* x = in[0].as<A>();
        if (in[0].dtype() != dtype_of<A>()) {
            read_numbers(in[0], 0, copy, rows_ * width_);
            x = copy;
        }
        multiply(x, scores, context.threads);
        std::vector<double> row(static_cast<size_t>(targets_));
        for (int64_t i = 0; i < rows_; ++i) {
            std::copy(scores + i * targets_, scores + (i + 1) * targets_, row.begin());
            transform_scores(transform_, row.data(), targets_);
            std::copy(row.begin(), row.end(), out[0].as<float>() + i * targets_);
        }
    }

  private:
    void multiply(const A* x, A* scores, int threads) const {
        const int64_t m = rows_, n = targets_, k = width_;
        if constexpr (std::is_same_v<A, float>) {
            Epilogue bias;
            bias.column_bias = intercepts_.data();
            product(m, n, k, {x, {k, 1}}, {coefficients_.data(), {1, k}}, scores, n, bias, threads);
        } else {
            plain_product<A>(m, n, k, x, {k, 1}, coefficients_.data(), {1, k}, scores);
            for (int64_t i = 0; i < m * n; ++i) scores[i] += intercepts_[static_cast<size_t>(i % n)];
        }
    }
    int64_t rows_, width_, targets_;
    Transform transform_;
    std::vector<A> coefficients_, intercepts_;
};

class LinearRegressor final : public Kernel {
  public:
    explicit LinearRegressor(const NodeSpec& s) {
        if (!s.has_input(0)) throw Unsupported("the input is missing");
        expect_numbers(s.inputs[0].dtype);
        spec_.coefficients = s.attrs.reals("coefficients");
        spec_.intercepts = s.attrs.reals("intercepts", {0});
        spec_.targets = s.attrs.integer("targets", 1);
        spec_.transform = transform_named(s.attrs.text("post_transform", "NONE"));
        const int64_t held = static_cast<int64_t>(spec_.coefficients.size());
        if (spec_.targets < 1 || held % spec_.targets != 0)
            throw BadOperand(std::to_string(held) + " coefficients for " + std::to_string(spec_.targets) + " targets");
        if (spec_.intercepts.empty()) spec_.intercepts = {0};
        if (spec_.intercepts.size() == 1) spec_.intercepts.assign(static_cast<size_t>(spec_.targets), spec_.intercepts[0]);
        if (static_cast<int64_t>(spec_.intercepts.size()) != spec_.targets) throw BadOperand("there are not as many intercepts as targets");
        width_ = held / spec_.targets;
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const RowsOf x(in[0].shape());
        if (x.width != width_) throw BadOperand("rows of " + std::to_string(x.width) + " features, the coefficients are for " + std::to_string(width_));
        out[0] = {DType::F32, {x.rows, spec_.targets}};
        if (in[0].dtype() == DType::F64) return std::make_unique<RunLinear<double>>(spec_, x.rows, x.width);
        return std::make_unique<RunLinear<float>>(spec_, x.rows, x.width);
    }

  private:
    LinearSpec spec_;
    int64_t width_;
};

}  // namespace

void register_linear(Registry& r) {
    r.add("LinearRegressor", [](const NodeSpec& s) { return std::make_unique<LinearRegressor>(s); }, "ai.onnx.ml");
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
