// DFT and STFT of real or complex signals of any length.
// https://onnx.ai/onnx/operators/onnx__DFT.html, __STFT.html
#include <memory>
#include <vector>

#include "kernels/axes.h"
#include "kernels/dtypes.h"
#include "kernels/fft.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

constexpr int64_t kLongest = int64_t{1} << 40;     // lengths beyond are refused
constexpr int64_t kPlannedAhead = int64_t{1} << 20;  // tables of longer transforms wait until the output has its memory
constexpr int kLanes = 8;

int64_t checked_length(int64_t n, const char* name) {
    if (n < 1 || n > kLongest) throw BadOperand(std::string(name) + " is " + std::to_string(n));
    return n;
}

// The parts of a complex element: the last dimension of every signal.
int64_t parts_of(const Shape& s, const char* name) {
    if (s.rank < 2 || s.back() < 1 || s.back() > 2)
        throw BadOperand(std::string(name) + " of shape " + s.str() + " does not end with 1 (real) or 2 (complex)");
    return s.back();
}

struct Transforms : Prepared {
    int64_t n, rows;
    bool inverse;
    std::shared_ptr<const Fft> planned;

    Transforms(int64_t length, int64_t count, bool back) : n(length), rows(count), inverse(back) {
        if (n <= kPlannedAhead) planned = std::make_shared<const Fft>(n);
        flops = 5.0 * static_cast<double>(n) * static_cast<double>(rows) * std::log2(static_cast<double>(n) + 1);
        algorithm = MixedRadix::suits(n) ? "mixed radix" : "Bluestein";
    }

    // load(row, signal, lanes) fills the n samples of one lane, store(row, signal, lanes) takes them.
    template <class Load, class Store> void transform(const Context& context, Load&& load, Store&& store) const {
        if (rows == 0) return;
        const auto fft = planned ? planned : std::make_shared<const Fft>(n);
        if (rows >= kLanes / 2 && n <= 4096) lanes<kLanes>(context, *fft, load, store);
        else lanes<1>(context, *fft, load, store);
    }

  private:
    template <int L, class Load, class Store>
    void lanes(const Context& context, const Fft& fft, Load& load, Store& store) const {
        parallel_ranges(context.threads, (rows + L - 1) / L, 16384 / (n * L) + 1, [&](int64_t begin, int64_t end) {
            std::vector<double> buffer(fft.template buffer<L>());
            const Signal signal = fft.template signal<L>(buffer.data());
            for (int64_t group = begin; group < end; ++group) {
                const int64_t first = group * L, used = std::min<int64_t>(L, rows - first);
                if (used < L) std::fill_n(buffer.data(), 2 * n * L, 0.0);
                for (int64_t l = 0; l < used; ++l) load(first + l, signal.at(l), L);
                fft.template run<L>(buffer.data(), inverse);
                for (int64_t l = 0; l < used; ++l) store(first + l, signal.at(l), L);
            }
        });
    }
};

// `count` samples from `data`, `stride` elements apart, zeros after them.
template <class T> void load_samples(const T* data, int64_t stride, int64_t parts, int64_t count, int64_t n, Signal to, int lanes) {
    for (int64_t i = 0; i < count; ++i) {
        const T* sample = data + i * stride;
        to.re[i * lanes] = static_cast<double>(widen(sample[0]));
        to.im[i * lanes] = parts == 2 ? static_cast<double>(widen(sample[1])) : 0.0;
    }
    for (int64_t i = count; i < n; ++i) to.re[i * lanes] = to.im[i * lanes] = 0.0;
}

template <class T>
void store_samples(Signal from, int lanes, double scale, int64_t count, int64_t parts, T* to, int64_t stride) {
    for (int64_t i = 0; i < count; ++i) {
        to[i * stride] = narrow<T>(static_cast<wide_t<T>>(from.re[i * lanes] * scale));
        if (parts == 2) to[i * stride + 1] = narrow<T>(static_cast<wide_t<T>>(from.im[i * lanes] * scale));
    }
}

// The upper half of the spectrum of a real signal follows from the lower: X[n - k] = conj X[k].
void mirror(Signal x, int64_t n, int lanes) {
    x.im[0] = 0;
    if (n % 2 == 0) x.im[n / 2 * lanes] = 0;
    for (int64_t k = n / 2 + 1; k < n; ++k) {
        x.re[k * lanes] = x.re[(n - k) * lanes];
        x.im[k * lanes] = -x.im[(n - k) * lanes];
    }
}

struct DftRun final : Transforms {
    Lanes from, to;  // around the axis, in complex elements
    int64_t parts, out_parts;
    bool mirrored;

    DftRun(int64_t length, bool back, bool half, const Shape& in, const Shape& out, int axis)
        : Transforms(length, 0, back), from(in, axis), to(out, axis), parts(in.back()), out_parts(out.back()), mirrored(back && half) {
        from.inner /= parts;
        to.inner /= out_parts;
        rows = from.outer * from.inner;
    }

    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        visit<FloatTypes>(in[0].dtype(), [&](auto t) {
            using T = decltype(t);
            const int64_t wanted = mirrored ? n / 2 + 1 : n, count = std::min(from.length, wanted);
            const double scale = inverse ? 1.0 / static_cast<double>(n) : 1.0;
            transform(
                context,
                [&](int64_t row, Signal signal, int lanes) {
                    const int64_t first = row / from.inner * from.length * from.inner + row % from.inner;
                    load_samples(in[0].as<T>() + first * parts, from.inner * parts, parts, count, n, signal, lanes);
                    if (mirrored) mirror(signal, n, lanes);
                },
                [&](int64_t row, Signal signal, int lanes) {
                    const int64_t first = row / to.inner * to.length * to.inner + row % to.inner;
                    store_samples(signal, lanes, scale, to.length, out_parts, out[0].as<T>() + first * out_parts, to.inner * out_parts);
                });
        });
    }
};

class Dft final : public Kernel {
  public:
    explicit Dft(const NodeSpec& s)
        : length_(s.has_input(1)), axis_(s.has_input(2)), inverse_(s.attrs.integer("inverse", 0) != 0),
          onesided_(s.attrs.integer("onesided", 0) != 0) {
        // ONNX's test of this form holds NumPy's float32 rounding, up to 2e-7 where the exact value is 0, to within 1e-7.
        if (inverse_ && !onesided_ && s.inputs[0].dtype == DType::F32) throw Unsupported("no native inverse DFT of float32");
    }
    uint32_t value_inputs() const override { return (length_ ? 1u << 1 : 0) | (axis_ ? 1u << 2 : 0); }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape& s = in[0].shape();
        parts_of(s, "the signal");
        const int axis = checked_axis(axis_ ? scalar_int(in[2], "axis") : -2, s.rank);
        if (axis == s.rank - 1) throw BadOperand("the last axis holds the parts of complex numbers");
        const bool real = inverse_ && onesided_;
        const int64_t n = checked_length(length_ ? scalar_int(in[1], "dft_length") : real ? 2 * (s[axis] - 1) : s[axis], "dft_length");
        out[0] = {in[0].dtype(), s};
        out[0].shape[axis] = onesided_ && !inverse_ ? n / 2 + 1 : n;
        out[0].shape[s.rank - 1] = real ? 1 : 2;
        out[0].count();  // throws where it overflows
        return std::make_unique<DftRun>(n, inverse_, onesided_, s, out[0].shape, axis);
    }

  private:
    bool length_, axis_, inverse_, onesided_;
};

struct StftRun final : Transforms {
    int64_t length, parts, step, frames, bins;
    bool windowed;

    StftRun(const Shape& signal, int64_t frame, int64_t hop, const Shape& out, bool window)
        : Transforms(frame, out[0] * out[1], false), length(signal[1]), parts(signal[2]), step(hop), frames(out[1]), bins(out[2]), windowed(window) {}

    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        std::vector<double> window(static_cast<size_t>(n), 1.0);
        if (windowed) read_reals(in[2].dtype(), in[2].data, 0, window.data(), n);
        visit<FloatTypes>(in[0].dtype(), [&](auto t) {
            using T = decltype(t);
            transform(
                context,
                [&](int64_t row, Signal signal, int lanes) {
                    const int64_t first = row / frames * length + row % frames * step;
                    load_samples(in[0].as<T>() + first * parts, parts, parts, n, n, signal, lanes);
                    for (int64_t i = 0; i < n; ++i) {
                        signal.re[i * lanes] *= window[static_cast<size_t>(i)];
                        signal.im[i * lanes] *= window[static_cast<size_t>(i)];
                    }
                },
                [&](int64_t row, Signal signal, int lanes) {
                    store_samples(signal, lanes, 1.0, bins, 2, out[0].as<T>() + row * bins * 2, 2);
                });
        });
    }
};

class Stft final : public Kernel {
  public:
    explicit Stft(const NodeSpec& s) : window_(s.has_input(2)), length_(s.has_input(3)), onesided_(s.attrs.integer("onesided", 1) != 0) {
        if (!s.has_input(1)) throw BadOperand("frame_step is missing");
    }
    uint32_t value_inputs() const override { return 1u << 1 | (length_ ? 1u << 3 : 0); }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape& s = in[0].shape();
        if (s.rank != 3) throw BadOperand("the signal has shape " + s.str() + ", expected three dimensions");
        parts_of(s, "the signal");
        if (window_ && in[2].shape().rank != 1) throw BadOperand("the window has shape " + in[2].shape().str());
        const int64_t otherwise = window_ ? in[2].shape()[0] : s[1];
        const int64_t n = checked_length(length_ ? scalar_int(in[3], "frame_length") : otherwise, "frame_length");
        const int64_t step = scalar_int(in[1], "frame_step");
        if (window_ && otherwise != n)
            throw BadOperand("a window of " + std::to_string(otherwise) + " does not fit frames of " + std::to_string(n));
        if (step < 1) throw BadOperand("frame_step is " + std::to_string(step));
        if (n > s[1]) throw BadOperand("a frame of " + std::to_string(n) + " is longer than the signal of " + std::to_string(s[1]));
        out[0] = {in[0].dtype(), {s[0], (s[1] - n) / step + 1, onesided_ ? n / 2 + 1 : n, 2}};
        out[0].count();  // throws where it overflows
        return std::make_unique<StftRun>(s, n, step, out[0].shape, window_);
    }

  private:
    bool window_, length_, onesided_;
};

template <class K> Factory spectral() {
    return [](const NodeSpec& s) -> std::unique_ptr<Kernel> {
        if (!s.has_input(0)) throw BadOperand("the signal is missing");
        visit<FloatTypes>(s.inputs[0].dtype, [](auto) {});
        return std::make_unique<K>(s);
    };
}

}  // namespace

void register_dft(Registry& r) {
    r.add("DFT", spectral<Dft>());
    r.add("STFT", spectral<Stft>());
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
