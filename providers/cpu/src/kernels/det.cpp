// Det (https://onnx.ai/onnx/operators/onnx__Det.html): elimination with partial pivoting, in float64 for every type.
#include <algorithm>
#include <cmath>

#include "kernels/axes.h"
#include "kernels/dtypes.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

// Destroys the matrix.
double determinant(double* a, int64_t n) {
    double product = 1;
    for (int64_t c = 0; c < n; ++c) {
        int64_t pivot = c;
        for (int64_t r = c + 1; r < n; ++r)
            if (std::abs(a[r * n + c]) > std::abs(a[pivot * n + c])) pivot = r;
        if (a[pivot * n + c] == 0) return 0;
        if (pivot != c) std::swap_ranges(a + c * n, a + (c + 1) * n, a + pivot * n);
        product *= pivot != c ? -a[c * n + c] : a[c * n + c];
        for (int64_t r = c + 1; r < n; ++r) {
            const double factor = a[r * n + c] / a[c * n + c];
            for (int64_t k = c + 1; k < n; ++k) a[r * n + k] -= factor * a[c * n + k];
        }
    }
    return product;
}

template <class T> class RunDet final : public Prepared {
  public:
    RunDet(int64_t matrices, int64_t n) : matrices_(matrices), n_(n) {
        flops = static_cast<double>(matrices) * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) * 2 / 3;
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        parallel_ranges(context.threads, matrices_, 1 + 4096 / (1 + n_ * n_), [&](int64_t begin, int64_t end) {
            std::vector<double> a(static_cast<size_t>(n_ * n_));
            for (int64_t i = begin; i < end; ++i) {
                read_reals(dtype_of<T>(), in[0].data, i * n_ * n_, a.data(), n_ * n_);
                out[0].as<T>()[i] = narrow<T>(static_cast<wide_t<T>>(determinant(a.data(), n_)));
            }
        });
    }

  private:
    int64_t matrices_, n_;
};

class Det final : public Kernel {
  public:
    explicit Det(const NodeSpec& spec) {
        if (!spec.has_input(0)) throw Unsupported("the first input is missing");
        visit<FloatTypes>(spec.inputs[0].dtype, [](auto) {});
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape& x = in[0].shape();
        if (x.rank < 2 || x.back() != x[x.rank - 2]) throw BadOperand("the input must be square matrices, its shape is " + x.str());
        Shape outer = x;
        outer.rank -= 2;
        out[0] = {in[0].dtype(), outer};
        const int64_t matrices = outer.count();
        return visit<FloatTypes>(in[0].dtype(), [&](auto t) -> std::unique_ptr<Prepared> {
            return std::make_unique<RunDet<decltype(t)>>(matrices, x.back());
        });
    }
};

}  // namespace

void register_det(Registry& r) {
    r.add("Det", [](const NodeSpec& s) { return std::make_unique<Det>(s); });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
