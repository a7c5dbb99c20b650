// Trilu and EyeLike (https://onnx.ai/onnx/operators/): one side of a diagonal of matrices, and ones on a diagonal.
#include <algorithm>
#include <cstring>

#include "kernels/axes.h"
#include "kernels/dtypes.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

// Column of row 0 where diagonal k passes, within what `rows` and `columns` can tell apart.
int64_t clamped(int64_t k, int64_t rows, int64_t columns) { return std::clamp(k, -rows, columns); }

class RunTriangle final : public Prepared {
  public:
    RunTriangle(const Shape& s, size_t size, int64_t k, bool upper)
        : matrices_(s.count(0, s.rank - 2)), rows_(s[s.rank - 2]), columns_(s.back()), size_(size), k_(clamped(k, rows_, columns_)), upper_(upper) {}
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        parallel_ranges(context.threads, matrices_ * rows_, 1 + (1 << 14) / std::max<int64_t>(columns_, 1), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) row(i % rows_, in[0].as<char>() + i * pitch(), out[0].as<char>() + i * pitch());
        });
    }

  private:
    int64_t pitch() const { return columns_ * static_cast<int64_t>(size_); }
    void row(int64_t i, const char* x, char* y) const {
        const size_t cut = static_cast<size_t>(std::clamp<int64_t>(i + k_ + !upper_, 0, columns_)) * size_, all = static_cast<size_t>(pitch());
        const size_t from = upper_ ? cut : 0, to = upper_ ? all : cut;
        std::memset(y, 0, from);
        std::memmove(y + from, x + from, to - from);
        std::memset(y + to, 0, all - to);
    }
    int64_t matrices_, rows_, columns_;
    size_t size_;
    int64_t k_;
    bool upper_;
};

class Triangle final : public Kernel {
  public:
    explicit Triangle(const NodeSpec& spec) : upper_(spec.attrs.integer("upper", 1) != 0), has_k_(spec.has_input(1)) {
        if (!spec.has_input(0)) throw Unsupported("the first input is missing");
        if (size_of(spec.inputs[0].dtype) == 0) throw Unsupported("strings");
    }
    uint32_t value_inputs() const override { return 2; }
    uint32_t inplace() const override { return 1; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape& s = in[0].shape();
        if (s.rank < 2) throw BadOperand("the input must be matrices, its shape is " + s.str());
        out[0] = in[0].desc;
        const int64_t k = has_k_ && in[1].present() ? scalar_int(in[1], "k") : 0;
        return std::make_unique<RunTriangle>(s, size_of(in[0].dtype()), k, upper_);
    }

  private:
    bool upper_, has_k_;
};

class RunEye final : public Prepared {
  public:
    explicit RunEye(int64_t k) : k_(k) {}
    void run(const Context&, const Tensor*, const Tensor* out) const override {
        std::memset(out[0].data, 0, out[0].desc.nbytes());
        const int64_t rows = out[0].shape()[0], columns = out[0].shape()[1], k = clamped(k_, rows, columns);
        visit<NumberTypes>(out[0].dtype(), [&](auto t) {
            using T = decltype(t);
            for (int64_t i = std::max<int64_t>(0, -k); i < rows && i + k < columns; ++i)
                out[0].as<T>()[i * columns + i + k] = narrow<T>(static_cast<wide_t<T>>(1));
        });
    }

  private:
    int64_t k_;
};

class EyeLike final : public Kernel {
  public:
    explicit EyeLike(const NodeSpec& spec) : k_(spec.attrs.integer("k", 0)) {
        if (!spec.has_input(0)) throw Unsupported("the first input is missing");
        dtype_ = static_cast<DType>(spec.attrs.integer("dtype", static_cast<int64_t>(spec.inputs[0].dtype)));
        visit<NumberTypes>(dtype_, [](auto) {});
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        if (in[0].shape().rank != 2) throw BadOperand("the input must be a matrix, its shape is " + in[0].shape().str());
        out[0] = {dtype_, in[0].shape()};
        return std::make_unique<RunEye>(k_);
    }

  private:
    int64_t k_;
    DType dtype_;
};

}  // namespace

void register_triangle(Registry& r) {
    for (const char* domain : {"", "com.microsoft"}) r.add("Trilu", [](const NodeSpec& s) { return std::make_unique<Triangle>(s); }, domain);
    r.add("EyeLike", [](const NodeSpec& s) { return std::make_unique<EyeLike>(s); });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
