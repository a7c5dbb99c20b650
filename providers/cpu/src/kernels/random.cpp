// RandomUniform, RandomNormal, their -Like forms, Bernoulli, Multinomial (https://onnx.ai/onnx/operators/). Number i of a
// call is a hash of the call's key and i (SplitMix64, Steele et al. 2014), so threads need no common state and do not
// change results. A seed gives the same numbers at every call; without one every call has a key of its own.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <random>

#include "kernels/broadcast.h"
#include "kernels/dtypes.h"
#include "kernels/vmath.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

uint64_t mixed(uint64_t z) {
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

class Stream {
  public:
    explicit Stream(uint64_t key) : key_(mixed(key)) {}
    // In [0, 1), for every i.
    template <class A> A uniform(uint64_t i) const {
        const uint64_t bits = mixed(key_ + i * 0x9e3779b97f4a7c15u);
        if constexpr (std::is_same_v<A, float>) return static_cast<float>(bits >> 40) * 0x1p-24f;
        else return static_cast<double>(bits >> 11) * 0x1p-53;
    }

  private:
    uint64_t key_;
};

class Seed {
  public:
    explicit Seed(const Attrs& attrs) : given_(attrs.has("seed")) {
        const float seed = static_cast<float>(attrs.real("seed", 0));
        uint32_t bits;
        std::memcpy(&bits, &seed, sizeof bits);
        key_ = bits;
    }
    Stream stream() const { return Stream(given_ ? key_ : fresh()); }

  private:
    static uint64_t fresh() {
        static std::atomic<uint64_t> next{[] {
            std::random_device device;
            return static_cast<uint64_t>(device()) << 32 | device();
        }()};
        return next++;
    }
    bool given_;
    uint64_t key_;
};

struct Law {
    bool normal = false;
    double a = 0, b = 1;  // lowest and highest, or mean and deviation
};

template <class A> void fill_uniform(const Stream& s, const Law& law, uint64_t at, A* y, int64_t n) {
    const A low = static_cast<A>(law.a), range = static_cast<A>(law.b - law.a);
    for (int64_t i = 0; i < n; ++i) y[i] = low + range * s.uniform<A>(at + static_cast<uint64_t>(i));
}

// The transform of Box and Muller (1958): from uniform u1, u2 to two normal numbers.
void box_muller(const float* u1, const float* u2, float* y0, float* y1, int64_t n) {
    for (int64_t i = 0; i < n; i += kLanes) {
        const vf r = vsqrt(-2.0f * vlog(1.0f - load(u1 + i))), angle = 6.28318530717958648f * load(u2 + i);
        store(y0 + i, r * vcos(angle));
        store(y1 + i, r * vsin(angle));
    }
}
void box_muller(const double* u1, const double* u2, double* y0, double* y1, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        const double r = std::sqrt(-2 * std::log(1 - u1[i])), angle = 6.28318530717958648 * u2[i];
        y0[i] = r * std::cos(angle);
        y1[i] = r * std::sin(angle);
    }
}
// n is at most kBlock, `at` a multiple of it.
template <class A> void fill_normal(const Stream& s, const Law& law, uint64_t at, A* y, int64_t n) {
    constexpr int64_t half = kBlock / 2;
    A u[kBlock], z[kBlock];
    for (int64_t i = 0; i < kBlock; ++i) u[i] = s.uniform<A>(at + static_cast<uint64_t>(i));
    box_muller(u, u + half, z, z + half, half);
    const A mean = static_cast<A>(law.a), deviation = static_cast<A>(law.b);
    for (int64_t i = 0; i < n; ++i) y[i] = mean + deviation * z[i];
}

// f(first, count) over blocks of n elements.
template <class F> void for_blocks(int threads, int64_t n, F&& f) {
    parallel_ranges(threads, (n + kBlock - 1) / kBlock, 8, [&](int64_t begin, int64_t end) {
        for (int64_t b = begin; b < end; ++b) f(b * kBlock, std::min(kBlock, n - b * kBlock));
    });
}

template <class T> class RunDraw final : public Prepared {
    using A = wide_t<T>;

  public:
    RunDraw(const Law& law, const Seed& seed) : law_(law), seed_(seed) {}
    void run(const Context& context, const Tensor*, const Tensor* out) const override {
        const Stream stream = seed_.stream();
        for_blocks(context.threads, out[0].count(), [&](int64_t at, int64_t n) {
            A block[kBlock];
            if (law_.normal) fill_normal(stream, law_, static_cast<uint64_t>(at), block, n);
            else fill_uniform(stream, law_, static_cast<uint64_t>(at), block, n);
            narrow(block, out[0].as<T>() + at, n);
        });
    }

  private:
    Law law_;
    Seed seed_;
};

class Draw final : public Kernel {
  public:
    Draw(const NodeSpec& s, bool normal, bool like) : like_(like), seed_(s.attrs) {
        if (like && !s.has_input(0)) throw Unsupported("the input is missing");
        law_.normal = normal;
        law_.a = s.attrs.real(normal ? "mean" : "low", 0);
        law_.b = s.attrs.real(normal ? "scale" : "high", 1);
        dtype_ = static_cast<DType>(s.attrs.integer("dtype", like ? static_cast<int64_t>(s.inputs[0].dtype) : 1));
        visit<FloatTypes>(dtype_, [](auto) {});
        if (like) return;
        for (int64_t d : s.attrs.integers("shape")) {
            if (d < 0) throw BadOperand("a negative dimension");
            shape_.push_back(d);
        }
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        out[0] = {dtype_, like_ ? in[0].shape() : shape_};
        out[0].count();
        return visit<FloatTypes>(dtype_, [&](auto t) -> std::unique_ptr<Prepared> { return std::make_unique<RunDraw<decltype(t)>>(law_, seed_); });
    }

  private:
    bool like_;
    Seed seed_;
    Law law_;
    DType dtype_;
    Shape shape_;
};

class RunBernoulli final : public Prepared {
  public:
    explicit RunBernoulli(const Seed& seed) : seed_(seed) {}
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const Stream stream = seed_.stream();
        for_blocks(context.threads, in[0].count(), [&](int64_t at, int64_t n) {
            double p[kBlock];
            read_reals(in[0].dtype(), in[0].data, at, p, n);
            visit<NumberTypes>(out[0].dtype(), [&](auto t) {
                using T = decltype(t);
                T* y = out[0].as<T>() + at;
                for (int64_t i = 0; i < n; ++i) y[i] = narrow<T>(static_cast<wide_t<T>>(stream.uniform<double>(static_cast<uint64_t>(at + i)) < p[i]));
            });
        });
    }

  private:
    Seed seed_;
};

class Bernoulli final : public Kernel {
  public:
    explicit Bernoulli(const NodeSpec& s) : seed_(s.attrs) {
        if (!s.has_input(0)) throw Unsupported("the input is missing");
        visit<FloatTypes>(s.inputs[0].dtype, [](auto) {});
        dtype_ = static_cast<DType>(s.attrs.integer("dtype", static_cast<int64_t>(s.inputs[0].dtype)));
        visit<NumberTypes>(dtype_, [](auto) {});
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        out[0] = {dtype_, in[0].shape()};
        return std::make_unique<RunBernoulli>(seed_);
    }

  private:
    Seed seed_;
    DType dtype_;
};

// Rows of logarithms of weights.
class RunMultinomial final : public Prepared {
  public:
    explicit RunMultinomial(const Seed& seed) : seed_(seed) {}
    void run(const Context&, const Tensor* in, const Tensor* out) const override {
        const int64_t classes = in[0].shape()[1], draws = out[0].shape()[1];
        const Stream stream = seed_.stream();
        std::vector<double> sums(static_cast<size_t>(classes));
        for (int64_t r = 0; r < in[0].shape()[0]; ++r) {
            accumulate(in[0], r * classes, sums);
            for (int64_t i = r * draws; i < (r + 1) * draws; ++i) {
                const double x = stream.uniform<double>(static_cast<uint64_t>(i)) * sums.back();
                const int64_t drawn = std::min<int64_t>(classes - 1, std::upper_bound(sums.begin(), sums.end(), x) - sums.begin());
                if (out[0].dtype() == DType::I32) out[0].as<int32_t>()[i] = static_cast<int32_t>(drawn);
                else out[0].as<int64_t>()[i] = drawn;
            }
        }
    }

  private:
    static void accumulate(const Tensor& t, int64_t at, std::vector<double>& sums) {
        read_reals(t.dtype(), t.data, at, sums.data(), static_cast<int64_t>(sums.size()));
        const double most = *std::max_element(sums.begin(), sums.end());
        double total = 0;
        for (double& s : sums) s = total += std::exp(s - most);
        if (!(total > 0)) throw BadOperand("weights that do not make a distribution");
    }
    Seed seed_;
};

class Multinomial final : public Kernel {
  public:
    explicit Multinomial(const NodeSpec& s) : seed_(s.attrs), dtype_(static_cast<DType>(s.attrs.integer("dtype", 6))), draws_(s.attrs.integer("sample_size", 1)) {
        if (!s.has_input(0)) throw Unsupported("the input is missing");
        visit<FloatTypes>(s.inputs[0].dtype, [](auto) {});
        if (dtype_ != DType::I32 && dtype_ != DType::I64) throw Unsupported(std::string("draws as ") + name_of(dtype_));
        if (draws_ < 0) throw BadOperand("sample_size is negative");
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape& x = in[0].shape();
        if (x.rank != 2 || (x[1] == 0 && x[0] > 0 && draws_ > 0)) throw BadOperand("the input must be rows of weights, its shape is " + x.str());
        out[0] = {dtype_, {x[0], draws_}};
        out[0].count();
        return std::make_unique<RunMultinomial>(seed_);
    }

  private:
    Seed seed_;
    DType dtype_;
    int64_t draws_;
};

}  // namespace

void register_random(Registry& r) {
    r.add("RandomUniform", [](const NodeSpec& s) { return std::make_unique<Draw>(s, false, false); });
    r.add("RandomUniformLike", [](const NodeSpec& s) { return std::make_unique<Draw>(s, false, true); });
    r.add("RandomNormal", [](const NodeSpec& s) { return std::make_unique<Draw>(s, true, false); });
    r.add("RandomNormalLike", [](const NodeSpec& s) { return std::make_unique<Draw>(s, true, true); });
    r.add("Bernoulli", [](const NodeSpec& s) { return std::make_unique<Bernoulli>(s); });
    r.add("Multinomial", [](const NodeSpec& s) { return std::make_unique<Multinomial>(s); });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
