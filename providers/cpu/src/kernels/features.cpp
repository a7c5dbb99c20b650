// Operators of ai.onnx.ml that prepare features: Binarizer, Imputer, OneHotEncoder, FeatureVectorizer,
// ArrayFeatureExtractor (https://onnx.ai/onnx/operators/#ai-onnx-ml), of numbers.
#include <algorithm>
#include <functional>

#include "kernels/rows.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

const char* const kDomain = "ai.onnx.ml";
using Body = std::function<void(const Tensor* in, const Tensor* out)>;

// These operators are small: a check of shapes that returns what to run.
class RunBody final : public Prepared {
  public:
    explicit RunBody(Body body) : body_(std::move(body)) {}
    void run(const Context&, const Tensor* in, const Tensor* out) const override { body_(in, out); }

  private:
    Body body_;
};
class FeatureKernel final : public Kernel {
  public:
    using Plan = std::function<Body(const Tensor* in, TensorDesc* out)>;
    FeatureKernel(const NodeSpec& s, Plan plan) : plan_(std::move(plan)) {
        if (s.inputs.empty()) throw Unsupported("the input is missing");
        for (const Operand& operand : s.inputs) expect_numbers(operand.dtype);
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override { return std::make_unique<RunBody>(plan_(in, out)); }

  private:
    Plan plan_;
};

std::unique_ptr<Kernel> make_binarizer(const NodeSpec& s) {
    const float threshold = static_cast<float>(s.attrs.real("threshold", 0));
    return std::make_unique<FeatureKernel>(s, [threshold](const Tensor* in, TensorDesc* out) -> Body {
        out[0] = in[0].desc;
        return [threshold](const Tensor* x, const Tensor* y) {
            visit<RowTypes>(x[0].dtype(), [&](auto t) {
                using T = decltype(t);
                for (int64_t i = 0, n = x[0].count(); i < n; ++i)
                    y[0].as<T>()[i] = narrow<T>(static_cast<wide_t<T>>(static_cast<double>(widen(x[0].as<T>()[i])) > static_cast<double>(threshold) ? 1 : 0));
            });
        };
    });
}

template <class T, class V> void impute(const Tensor& x, const Tensor& y, int64_t width, const std::vector<V>& values, V replaced) {
    const T *from = x.as<T>(), wanted = static_cast<T>(replaced);
    for (int64_t i = 0, n = x.count(); i < n; ++i) {
        const bool hit = from[i] == wanted || (wanted != wanted && from[i] != from[i]);
        y.as<T>()[i] = hit ? static_cast<T>(values.size() == 1 ? values[0] : values[static_cast<size_t>(i % width)]) : from[i];
    }
}
// Floats are given for operands of floats, integers for those of integers.
std::unique_ptr<Kernel> make_imputer(const NodeSpec& s) {
    if (!s.has_input(0)) throw Unsupported("the input is missing");
    const DType type = s.inputs[0].dtype;
    if (type == DType::F16) throw Unsupported("float16");
    const bool integers = type == DType::I32 || type == DType::I64;
    const auto reals = s.attrs.reals("imputed_value_floats");
    const auto whole = s.attrs.integers("imputed_value_int64s");
    if (integers ? whole.empty() || !reals.empty() : reals.empty()) throw Unsupported("values of another kind than the operand");
    const double real = s.attrs.real("replaced_value_float", 0);
    const int64_t integer = s.attrs.integer("replaced_value_int64", 0);
    return std::make_unique<FeatureKernel>(s, [=](const Tensor* in, TensorDesc* out) -> Body {
        const int64_t width = RowsOf(in[0].shape()).width, given = static_cast<int64_t>(integers ? whole.size() : reals.size());
        if (given != 1 && given != width) throw BadOperand(std::to_string(given) + " values for " + std::to_string(width) + " features");
        out[0] = in[0].desc;
        return [=](const Tensor* x, const Tensor* y) {
            switch (type) {
                case DType::F32: return impute<float>(x[0], y[0], width, reals, real);
                case DType::F64: return impute<double>(x[0], y[0], width, reals, real);
                case DType::I32: return impute<int32_t>(x[0], y[0], width, whole, integer);
                default: return impute<int64_t>(x[0], y[0], width, whole, integer);
            }
        };
    });
}

std::unique_ptr<Kernel> make_one_hot(const NodeSpec& s) {
    const auto categories = s.attrs.integers("cats_int64s");
    if (categories.empty()) throw Unsupported("categories that are strings");
    std::map<double, int64_t> places;
    for (size_t i = 0; i < categories.size(); ++i) places[static_cast<double>(categories[i])] = static_cast<int64_t>(i);
    if (places.size() != categories.size()) throw Unsupported("categories that repeat");
    const bool zeros = s.attrs.integer("zeros", 1) != 0;
    return std::make_unique<FeatureKernel>(s, [places, zeros](const Tensor* in, TensorDesc* out) -> Body {
        Shape shape = in[0].shape();
        const int64_t width = static_cast<int64_t>(places.size());
        shape.push_back(width);
        out[0] = {DType::F32, shape};
        return [places, zeros, width](const Tensor* x, const Tensor* y) {
            std::fill(y[0].as<float>(), y[0].as<float>() + y[0].count(), 0.f);
            visit<RowTypes>(x[0].dtype(), [&](auto t) {
                for (int64_t i = 0, n = x[0].count(); i < n; ++i) {
                    const auto found = places.find(static_cast<double>(widen(x[0].as<decltype(t)>()[i])));
                    if (found != places.end()) y[0].as<float>()[i * width + found->second] = 1;
                    else if (!zeros) throw BadOperand("element " + std::to_string(i) + " is none of the categories");
                }
            });
        };
    });
}

// Each operand is cut, or filled up with zeros, to its width.
std::unique_ptr<Kernel> make_vectorizer(const NodeSpec& s) {
    const auto widths = s.attrs.integers("inputdimensions");
    if (widths.size() != s.inputs.size()) throw Unsupported("not as many inputdimensions as operands");
    for (int64_t w : widths)
        if (w < 0) throw BadOperand("a negative inputdimension");
    return std::make_unique<FeatureKernel>(s, [widths](const Tensor* in, TensorDesc* out) -> Body {
        int64_t rows = 0, total = 0;
        for (size_t i = 0; i < widths.size(); ++i) {
            const Shape& shape = in[i].shape();
            if (shape.rank < 1 || shape.rank > 2 || (i > 0 && shape[0] != rows)) throw BadOperand("operand " + std::to_string(i) + " has shape " + shape.str());
            rows = shape[0];
            total += widths[i];
        }
        out[0] = {DType::F32, {rows, total}};
        return [widths, rows, total](const Tensor* x, const Tensor* y) {
            int64_t at = 0;
            for (size_t i = 0; i < widths.size(); at += widths[i++]) {
                const int64_t own = x[i].shape().rank == 2 ? x[i].shape()[1] : 1, common = std::min(own, widths[i]);
                for (int64_t r = 0; r < rows; ++r) {
                    float* to = y[0].as<float>() + r * total + at;
                    read_numbers(x[i], r * own, to, common);
                    std::fill(to + common, to + widths[i], 0.f);
                }
            }
        };
    });
}

// The columns named, of the last axis; a vector counts as one row.
std::unique_ptr<Kernel> make_extractor(const NodeSpec& s) {
    if (!s.has_input(1)) throw Unsupported("the indices are missing");
    return std::make_unique<FeatureKernel>(s, [](const Tensor* in, TensorDesc* out) -> Body {
        Shape shape = in[0].shape();
        if (shape.rank < 1 || in[1].dtype() != DType::I64) throw BadOperand("a scalar, or indices that are not int64");
        const int64_t width = shape.back(), chosen = in[1].count();
        shape[shape.rank - 1] = chosen;
        if (shape.rank == 1) shape = Shape{1, chosen};
        const int64_t rows = shape.count(0, shape.rank - 1);
        out[0] = {in[0].dtype(), shape};
        return [width, chosen, rows](const Tensor* x, const Tensor* y) {
            const int64_t* indices = x[1].as<int64_t>();
            for (int64_t i = 0; i < chosen; ++i)
                if (indices[i] < 0 || indices[i] >= width) throw BadOperand("index " + std::to_string(indices[i]) + " is outside " + std::to_string(width) + " features");
            visit<RowTypes>(x[0].dtype(), [&](auto t) {
                using T = decltype(t);
                for (int64_t r = 0; r < rows; ++r)
                    for (int64_t i = 0; i < chosen; ++i) y[0].as<T>()[r * chosen + i] = x[0].as<T>()[r * width + indices[i]];
            });
        };
    });
}

}  // namespace

void register_features(Registry& r) {
    r.add("Binarizer", make_binarizer, kDomain);
    r.add("Imputer", make_imputer, kDomain);
    r.add("OneHotEncoder", make_one_hot, kDomain);
    r.add("FeatureVectorizer", make_vectorizer, kDomain);
    r.add("ArrayFeatureExtractor", make_extractor, kDomain);
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
