// What spectral features are made with: HannWindow, HammingWindow, BlackmanWindow, MelWeightMatrix
// (https://onnx.ai/onnx/operators/). Computed in float64 and rounded once; integer types truncate.
#include <cmath>

#include "kernels/axes.h"
#include "kernels/dtypes.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

constexpr double kPi = 3.14159265358979323846;

DType output_type(const NodeSpec& spec) {
    const DType t = static_cast<DType>(spec.attrs.integer("output_datatype", 1));
    if (t == DType::Bool) throw Unsupported("bool");
    visit<NumberTypes>(t, [](auto) {});
    return t;
}
void write_number(double x, const Tensor& out, int64_t i) {
    visit<NumberTypes>(out.dtype(), [&](auto t) {
        using T = decltype(t);
        if constexpr (is_real<T>) out.as<T>()[i] = narrow<T>(static_cast<wide_t<T>>(x));
        else out.as<T>()[i] = x == x ? static_cast<T>(x) : T{};
    });
}

// a0 + a1 cos(p) + a2 cos(2 p), p over one period.
struct Cosines {
    double a0, a1, a2;
};

class RunWindow final : public Prepared {
  public:
    RunWindow(const Cosines& cosines, int64_t period) : cosines_(cosines), period_(period) {}
    void run(const Context&, const Tensor*, const Tensor* out) const override {
        for (int64_t i = 0, n = out[0].count(); i < n; ++i) {
            const double p = 2 * kPi * static_cast<double>(i) / static_cast<double>(period_);
            write_number(cosines_.a0 + cosines_.a1 * std::cos(p) + cosines_.a2 * std::cos(2 * p), out[0], i);
        }
    }

  private:
    Cosines cosines_;
    int64_t period_;
};

class Window final : public Kernel {
  public:
    Window(const NodeSpec& spec, const Cosines& cosines)
        : cosines_(cosines), dtype_(output_type(spec)), periodic_(spec.attrs.integer("periodic", 1) != 0) {
        if (!spec.has_input(0)) throw Unsupported("the size is missing");
    }
    uint32_t value_inputs() const override { return 1; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const int64_t size = scalar_int(in[0], "size");
        if (size < 0) throw BadOperand("a window of size " + std::to_string(size));
        out[0] = {dtype_, {size}};
        out[0].count();
        return std::make_unique<RunWindow>(cosines_, periodic_ ? size : size - 1);
    }

  private:
    Cosines cosines_;
    DType dtype_;
    bool periodic_;
};

double scalar_real(const Tensor& t, const char* name) {
    if (!t.data || t.count() != 1) throw BadOperand(std::string(name) + " must hold one number, its shape is " + t.shape().str());
    double x;
    read_reals(t.dtype(), t.data, 0, &x, 1);
    return x;
}

class RunMel final : public Prepared {
  public:
    explicit RunMel(std::vector<int64_t> edges) : edges_(std::move(edges)) {}
    void run(const Context&, const Tensor*, const Tensor* out) const override {
        const int64_t bins = out[0].shape()[0], bands = out[0].shape()[1];
        for (int64_t j = 0; j < bins; ++j)
            for (int64_t i = 0; i < bands; ++i) write_number(weight(i, j), out[0], j * bands + i);
    }

  private:
    // A triangle from edge i over edge i + 1 down to edge i + 2.
    double weight(int64_t i, int64_t j) const {
        const size_t at = static_cast<size_t>(i);
        const int64_t left = edges_[at], middle = edges_[at + 1], right = edges_[at + 2];
        if (j >= middle && j < right) return static_cast<double>(right - j) / static_cast<double>(right - middle);
        if (j < left || j > middle) return 0;
        return left == middle ? 1 : static_cast<double>(j - left) / static_cast<double>(middle - left);
    }
    std::vector<int64_t> edges_;
};

class MelWeights final : public Kernel {
  public:
    explicit MelWeights(const NodeSpec& spec) : dtype_(output_type(spec)) {
        for (size_t i = 0; i < 5; ++i)
            if (!spec.has_input(i)) throw Unsupported("an input is missing");
        for (size_t i : {3, 4}) visit<FloatTypes>(spec.inputs[i].dtype, [](auto) {});
    }
    uint32_t value_inputs() const override { return 31; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const int64_t bands = scalar_int(in[0], "num_mel_bins"), length = scalar_int(in[1], "dft_length"), rate = scalar_int(in[2], "sample_rate");
        const double low = mel(scalar_real(in[3], "lower_edge_hertz")), high = mel(scalar_real(in[4], "upper_edge_hertz"));
        if (bands < 0 || length < 0 || rate <= 0) throw BadOperand("num_mel_bins, dft_length or sample_rate is negative or zero");
        const int64_t bins = length / 2 + 1;
        out[0] = {dtype_, {bins, bands}};
        out[0].count();
        std::vector<int64_t> edges;
        for (int64_t i = 0; i < bands + 2; ++i) {
            const double hertz = 700 * std::expm1((low + static_cast<double>(i) * (high - low) / static_cast<double>(bands + 2)) / 2595 * std::log(10.0));
            const double edge = std::floor((static_cast<double>(length) + 1) * hertz / static_cast<double>(rate));
            if (!(edge >= 0 && edge <= static_cast<double>(bins))) throw BadOperand("a band edge of " + std::to_string(hertz) + " Hz is outside the spectrum");
            edges.push_back(static_cast<int64_t>(edge));
        }
        return std::make_unique<RunMel>(std::move(edges));
    }

  private:
    static double mel(double hertz) { return 2595 * std::log1p(hertz / 700) / std::log(10.0); }
    DType dtype_;
};

template <int A0, int A1, int A2, int Scale> std::unique_ptr<Kernel> window(const NodeSpec& s) {
    return std::make_unique<Window>(s, Cosines{static_cast<double>(A0) / Scale, static_cast<double>(A1) / Scale, static_cast<double>(A2) / Scale});
}

}  // namespace

void register_spectral(Registry& r) {
    r.add("HannWindow", window<1, -1, 0, 2>);
    r.add("HammingWindow", window<25, -21, 0, 46>);
    r.add("BlackmanWindow", window<21, -25, 4, 50>);
    r.add("MelWeightMatrix", [](const NodeSpec& s) { return std::make_unique<MelWeights>(s); });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
