// GridSample over one to three spatial axes: the taps of a point are found once and applied to every channel.
// https://onnx.ai/onnx/operators/onnx__GridSample.html
#include <algorithm>
#include <cmath>

#include "kernels/axes.h"
#include "kernels/dtypes.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

enum class Mode { Nearest, Linear, Cubic };
enum class Padding { Zeros, Border, Reflection };
constexpr int kMaxAxes = 3, kMaxTaps = 64;

struct Sampling {
    Mode mode;
    Padding padding;
    bool corners;  // -1 and 1 are the centres of the outermost pixels, not their outer edges
};

// One spatial axis; coordinates and bounds are in pixels.
template <class U> class Axis {
  public:
    Axis(const Sampling& s, int64_t extent)
        : sampling_(s), extent_(extent), low_(s.corners ? U{0} : U{-0.5}), high_(static_cast<U>(extent) + (s.corners ? U{-1} : U{-0.5})) {}

    // Pixels (-1: none) and weights around normal coordinate `n`; returns how many.
    int taps(U n, int64_t* at, U* weight) const {
        const U x = padded(pixel(n)), floor = std::floor(x), t = x - floor;
        const int64_t first = static_cast<int64_t>(floor);
        switch (sampling_.mode) {
            case Mode::Nearest:
                at[0] = index(first);
                weight[0] = 1;
                return 1;
            case Mode::Linear:
                for (int i = 0; i < 2; ++i) at[i] = index(first + i);
                weight[0] = 1 - t;
                weight[1] = t;
                return 2;
            case Mode::Cubic: break;
        }
        for (int i = 0; i < 4; ++i) at[i] = index(first + i - 1);
        cubic(t, weight);
        return 4;
    }

  private:
    static void cubic(U t, U* weight) {
        const U a = U{-0.75};
        auto near = [&](U x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
        auto far = [&](U x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
        weight[0] = far(t + 1);
        weight[1] = near(t);
        weight[2] = near(1 - t);
        weight[3] = far(2 - t);
    }

    U pixel(U n) const {
        const U extent = static_cast<U>(extent_);
        const U x = sampling_.corners ? (n + 1) / 2 * (extent - 1) : ((n + 1) * extent - 1) / 2;
        return sampling_.mode == Mode::Nearest ? std::nearbyint(x) : x;
    }

    // What is not a number counts as the first pixel where pixels repeat, as outside where they do not.
    U padded(U x) const {
        if (x >= low_ && x <= high_) return x;
        const U extent = static_cast<U>(extent_);
        switch (sampling_.padding) {
            case Padding::Zeros: return x > -4 && x < extent + 4 ? x : U{-4};
            case Padding::Border: return x > 0 ? std::min(x, extent - 1) : U{0};
            case Padding::Reflection: break;
        }
        const U r = reflected(x);
        return r >= low_ && r <= high_ ? r : U{0};
    }
    U reflected(U x) const {
        const U span = high_ - low_, m = std::fmod(x < low_ ? low_ - x : x - low_, 2 * span);
        return m < span ? low_ + m : high_ - (m - span);
    }

    int64_t index(int64_t i) const {
        if (i >= 0 && i < extent_) return i;
        if (sampling_.padding == Padding::Zeros) return -1;
        if (sampling_.padding == Padding::Reflection) i = static_cast<int64_t>(padded(static_cast<U>(i)));
        return std::clamp<int64_t>(i, 0, extent_ - 1);
    }

    Sampling sampling_;
    int64_t extent_;
    U low_, high_;
};

// Weighted pixels of one point, all axes together.
template <class U> struct Taps {
    int count;
    int64_t offset[kMaxTaps];
    U weight[kMaxTaps];

    void find(const std::vector<Axis<U>>& axes, const Shape& data, const U* point) {
        count = 1;
        offset[0] = 0;
        weight[0] = 1;
        for (size_t d = 0; d < axes.size(); ++d) {
            int64_t at[4];
            U w[4];
            const int n = axes[d].taps(point[axes.size() - 1 - d], at, w);  // a point names the last axis first
            extend(data[static_cast<int>(d) + 2], n, at, w);
        }
    }

  private:
    void extend(int64_t extent, int n, const int64_t* at, const U* w) {
        const int before = count;
        int64_t offsets[kMaxTaps / 2];
        U weights[kMaxTaps / 2];
        std::copy(offset, offset + before, offsets);
        std::copy(weight, weight + before, weights);
        count = 0;
        for (int i = 0; i < before; ++i)
            for (int j = 0; j < n; ++j) {
                if (at[j] < 0) continue;
                offset[count] = offsets[i] * extent + at[j];
                weight[count++] = weights[i] * w[j];
            }
    }
};

template <class T> struct GridSampleRun final : Prepared {
    using U = wide_t<T>;
    Shape data;
    std::vector<Axis<U>> axes;
    int64_t points = 0;  // of one image

    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const int64_t channels = data[1], plane = data.count(2), rank = static_cast<int64_t>(axes.size());
        parallel_ranges(context.threads, data[0] * points, 4096 / (channels + 8) + 1, [&](int64_t begin, int64_t end) {
            Taps<U> taps;
            for (int64_t i = begin; i < end; ++i) {
                U point[kMaxAxes];
                read_reals(in[1].dtype(), in[1].data, i * rank, point, rank);
                taps.find(axes, data, point);
                const int64_t first = i / points * channels;
                for (int64_t c = first; c < first + channels; ++c) {
                    const T* from = in[0].as<T>() + c * plane;
                    U sum = 0;
                    for (int t = 0; t < taps.count; ++t) sum += taps.weight[t] * widen(from[taps.offset[t]]);
                    out[0].as<T>()[c * points + i % points] = narrow<T>(sum);
                }
            }
        });
    }
};

class GridSample final : public Kernel {
  public:
    explicit GridSample(const Sampling& s) : sampling_(s) {}
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape &data = in[0].shape(), &grid = in[1].shape();
        const int axes = data.rank - 2;
        if (axes < 1 || axes > kMaxAxes) throw BadOperand("an input of shape " + data.str() + "; one to three spatial axes can be sampled");
        if (grid.rank != data.rank || grid.back() != axes || grid[0] != data[0])
            throw BadOperand("a grid of shape " + grid.str() + " does not fit the input, " + data.str());
        out[0] = {in[0].dtype(), {data[0], data[1]}};
        for (int i = 1; i <= axes; ++i) out[0].shape.push_back(grid[i]);
        if (sampling_.padding != Padding::Zeros && data.count(2) == 0 && out[0].count() != 0)
            throw BadOperand("nothing to sample in an input of shape " + data.str());
        return visit<FloatTypes>(in[0].dtype(), [&](auto t) -> std::unique_ptr<Prepared> {
            auto run = std::make_unique<GridSampleRun<decltype(t)>>();
            run->data = data;
            for (int i = 0; i < axes; ++i) run->axes.emplace_back(sampling_, data[i + 2]);
            run->points = grid.count(1, grid.rank - 1);
            return run;
        });
    }

  private:
    Sampling sampling_;
};

Mode mode_named(const std::string& name) {
    if (name == "nearest") return Mode::Nearest;
    if (name == "linear") return Mode::Linear;
    if (name == "cubic") return Mode::Cubic;
    throw BadOperand("the mode is '" + name + "'");
}
Padding padding_named(const std::string& name) {
    if (name == "zeros") return Padding::Zeros;
    if (name == "border") return Padding::Border;
    if (name == "reflection") return Padding::Reflection;
    throw BadOperand("the padding mode is '" + name + "'");
}

}  // namespace

void register_grid_sample(Registry& r) {
    r.add("GridSample", [](const NodeSpec& s) -> std::unique_ptr<Kernel> {
        for (size_t i = 0; i < 2; ++i) {
            if (!s.has_input(i)) throw BadOperand("input " + std::to_string(i) + " is missing");
            visit<FloatTypes>(s.inputs[i].dtype, [](auto) {});
        }
        if (s.inputs[0].rank > kMaxAxes + 2) throw Unsupported("GridSample over more than three spatial axes");
        return std::make_unique<GridSample>(Sampling{mode_named(s.attrs.text("mode", "linear")),
                                                     padding_named(s.attrs.text("padding_mode", "zeros")),
                                                     s.attrs.integer("align_corners", 0) != 0});
    });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
