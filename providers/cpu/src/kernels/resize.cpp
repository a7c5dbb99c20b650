// Resize. "nearest" moves elements of any type; "linear" and "cubic" work along one axis after the other, in float32
// (float64 for types that float32 does not hold).
#include "kernels/resize.h"

#include <limits>

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

template <class T>
using resize_t = std::conditional_t<std::is_same_v<T, double> || (std::is_integral_v<T> && sizeof(T) > 2), double, float>;

template <class T> T from_wide(resize_t<T> x) {
    if constexpr (is_real<T>) {
        return narrow<T>(x);
    } else {
        if (x != x) return 0;
        // The greatest 64-bit integers round up to a power of two: only what is below it may be converted.
        const auto least = static_cast<resize_t<T>>(std::numeric_limits<T>::min());
        const auto most = static_cast<resize_t<T>>(std::numeric_limits<T>::max());
        const auto y = std::nearbyint(x);
        return y <= least ? std::numeric_limits<T>::min() : y >= most ? std::numeric_limits<T>::max() : static_cast<T>(y);
    }
}
template <class To, class From> To converted(From x) {
    if constexpr (std::is_same_v<To, From>) return x;
    else if constexpr (std::is_same_v<To, resize_t<From>>) return static_cast<To>(widen(x));
    else return from_wide<To>(x);
}

// The extrapolation value as an element of the given type.
struct Fill {
    char bytes[16] = {};
    Fill(DType dtype, double value) {
        if (value == 0) return;
        visit<NumberTypes>(dtype, [&](auto t) {
            using T = decltype(t);
            const T x = from_wide<T>(static_cast<resize_t<T>>(value));
            std::memcpy(bytes, &x, sizeof x);
        });
    }
};

class NearestRun final : public Prepared {
  public:
    NearestRun(const ResizePlan& plan, const Shape& from, DType dtype, double extrapolation)
        : taps_(plan.taps()), to_(plan.to), fill_(dtype, extrapolation), element_(size_of(dtype)) {
        last_ = taps_.empty() ? to_.rank : taps_.back().axis;
        for (int i = 0; i < from.rank; ++i) stride_[i] = to_.count() ? from.count(i + 1) * static_cast<int64_t>(element_) : 0;
        if (!taps_.empty()) repeat_ = whole_repeat(taps_.back(), from[last_]);
        algorithm = "nearest";
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        if (out[0].count() == 0) return;
        if (taps_.empty()) {
            std::memcpy(out[0].data, in[0].data, out[0].desc.nbytes());
            return;
        }
        const int64_t unit = to_.count(last_ + 1) * static_cast<int64_t>(element_), row = unit * to_[last_];
        with_block_copy(static_cast<size_t>(unit), [&](auto copy) {
            parallel_ranges(context.threads, to_.count(0, last_), 65536 / row + 1, [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) fill_row(i, unit, in[0].as<char>(), out[0].as<char>() + i * row, copy);
            });
        });
    }

  private:
    template <class Copy> void fill_row(int64_t row, int64_t unit, const char* from, char* to, Copy copy) const {
        const Taps& last = taps_.back();
        bool outside = false;
        size_t table = taps_.size() - 1;
        for (int axis = last_ - 1; axis >= 0; --axis) {
            int64_t at = row % to_[axis];
            row /= to_[axis];
            if (table > 0 && taps_[table - 1].axis == axis) {
                const Taps& taps = taps_[--table];
                outside |= taps.outside[static_cast<size_t>(at)] != 0;
                at = taps.index[static_cast<size_t>(at)];
            }
            from += at * stride_[axis];
        }
        if (repeat_ == 2 && !outside) return repeat_row<2>(from, to, unit, copy);
        for (size_t o = 0; o < last.index.size(); ++o, to += unit) {
            if (outside || last.outside[o]) put_fill(to, unit);
            else copy(to, from + last.index[o] * stride_[last_]);
        }
    }
    template <int64_t N, class Copy> void repeat_row(const char* from, char* to, int64_t unit, Copy copy) const {
        const int64_t n = to_[last_] / N;
        for (int64_t i = 0; i < n; ++i)
            for (int64_t k = 0; k < N; ++k) copy(to + (i * N + k) * unit, from + i * unit);
    }
    // How often every element of the axis comes, one after the other; 0 where that differs.
    static int64_t whole_repeat(const Taps& taps, int64_t length) {
        const int64_t n = static_cast<int64_t>(taps.index.size());
        if (n == 0 || n % length != 0) return 0;
        for (int64_t o = 0; o < n; ++o) {
            const size_t at = static_cast<size_t>(o);
            if (taps.outside[at] || taps.index[at] != o / (n / length)) return 0;
        }
        return n / length;
    }
    void put_fill(char* to, int64_t unit) const {
        for (int64_t i = 0; i < unit; i += static_cast<int64_t>(element_)) std::memcpy(to + i, fill_.bytes, element_);
    }

    std::vector<Taps> taps_;
    Shape to_;
    Fill fill_;
    size_t element_;
    int last_ = 0;                    // the innermost axis that changes
    int64_t repeat_ = 0;              // of every element along that axis, where it is always the same
    int64_t stride_[kMaxRank] = {};   // bytes
};

// Along one axis, seen as (outer, length, inner).
template <class A> struct Pass {
    Lanes lanes;
    Taps taps;
    std::vector<A> weight;
    int64_t length = 0;               // of the output along the axis
    bool any_outside = false;

    Pass(const Shape& from, Taps t, int64_t out_length)
        : lanes(from, t.axis), taps(std::move(t)), weight(taps.weight.begin(), taps.weight.end()), length(out_length) {
        any_outside = std::any_of(taps.outside.begin(), taps.outside.end(), [](char c) { return c != 0; });
    }
    int64_t count() const { return lanes.outer * length * lanes.inner; }

    template <class From, class To> void run(int threads, const From* from, To* to, A fill) const {
        const int64_t inner = lanes.inner;
        parallel_ranges(threads, lanes.outer * length, 16384 / inner + 1, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end;) {
                const int64_t first = i % length, n = std::min(end - i, length - first);
                const From* source = from + i / length * lanes.length * inner;
                To* target = to + i * inner;
                if (inner > 1 || any_outside) {
                    for (int64_t o = 0; o < n; ++o) blend(source, target + o * inner, static_cast<size_t>(first + o), fill);
                } else if (taps.count == 2) {
                    line<2>(source, target, static_cast<size_t>(first), static_cast<size_t>(n));
                } else {
                    line<4>(source, target, static_cast<size_t>(first), static_cast<size_t>(n));
                }
                i += n;
            }
        });
    }

  private:
    // n elements from the given one on, where the axis is the innermost.
    template <size_t N, class From, class To> void line(const From* from, To* to, size_t first, size_t n) const {
        const int64_t* index = &taps.index[first * N];
        const A* w = &weight[first * N];
        for (size_t o = 0; o < n; ++o, index += N, w += N) {
            A sum = w[0] * converted<A>(from[index[0]]);
            for (size_t k = 1; k < N; ++k) sum += w[k] * converted<A>(from[index[k]]);
            to[o] = converted<To>(sum);
        }
    }
    template <class From, class To> void blend(const From* from, To* to, size_t o, A fill) const {
        const int64_t inner = lanes.inner;
        if (taps.outside[o]) {
            std::fill(to, to + inner, converted<To>(fill));
            return;
        }
        const size_t first = o * static_cast<size_t>(taps.count);
        const int64_t* index = &taps.index[first];
        const A* w = &weight[first];
        const From *a = from + index[0] * inner, *b = from + index[1] * inner;
        if (taps.count == 2) {
            for (int64_t c = 0; c < inner; ++c) to[c] = converted<To>(w[0] * converted<A>(a[c]) + w[1] * converted<A>(b[c]));
            return;
        }
        const From *d = from + index[2] * inner, *e = from + index[3] * inner;
        for (int64_t c = 0; c < inner; ++c)
            to[c] = converted<To>(w[0] * converted<A>(a[c]) + w[1] * converted<A>(b[c]) + w[2] * converted<A>(d[c]) + w[3] * converted<A>(e[c]));
    }
};

template <class T> class BlendRun final : public Prepared {
    using A = resize_t<T>;

  public:
    BlendRun(const ResizePlan& plan, Shape from, double extrapolation) : fill_(static_cast<A>(extrapolation)) {
        std::vector<Taps> all = plan.taps();
        // The innermost axis is the slow one: its turn comes when the data is small, after axes that shrink and before
        // axes that grow.
        auto turn = [&](const Taps& t) { return plan.to[t.axis] > from[t.axis] ? 2 * kMaxRank - t.axis : t.axis; };
        std::sort(all.begin(), all.end(), [&](const Taps& a, const Taps& b) { return turn(a) < turn(b); });
        for (Taps& t : all) {
            const int axis = t.axis;
            passes_.emplace_back(from, std::move(t), plan.to[axis]);
            from[axis] = plan.to[axis];
            from.count();
        }
        for (size_t i = 0; i + 1 < passes_.size(); ++i) half_ = std::max(half_, passes_[i].count());
        workspace = static_cast<size_t>(half_) * sizeof(A) * 2;
        for (const Pass<A>& p : passes_) flops += 2.0 * p.taps.count * static_cast<double>(p.count());
        algorithm = "axis by axis";
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        if (out[0].count() == 0) return;
        const T* from = in[0].as<T>();
        T* to = out[0].as<T>();
        A* between[2] = {static_cast<A*>(context.workspace), static_cast<A*>(context.workspace) + half_};
        const size_t n = passes_.size();
        if (n == 0) std::memcpy(to, from, out[0].desc.nbytes());
        else if (n == 1) passes_[0].run(context.threads, from, to, fill_);
        else passes_[0].run(context.threads, from, between[0], fill_);
        for (size_t i = 1; i + 1 < n; ++i) passes_[i].run(context.threads, between[(i - 1) % 2], between[i % 2], fill_);
        if (n > 1) passes_[n - 1].run(context.threads, between[(n - 2) % 2], to, fill_);
    }

  private:
    std::vector<Pass<A>> passes_;
    A fill_;
    int64_t half_ = 0;                // elements of either intermediate buffer
};

class Resize final : public Kernel {
  public:
    explicit Resize(const NodeSpec& s) : attrs_(s) {
        expect_bytes(s);
        const DType dtype = s.inputs[0].dtype;
        if (attrs_.mode != "nearest") {
            if (dtype == DType::Bool) throw Unsupported("no native kernel for bool");
            visit<NumberTypes>(dtype, [](auto) {});
        }
        if (attrs_.crops()) Fill(dtype, attrs_.extrapolation);
        if (attrs_.crops() && attrs_.has_roi) visit<FloatTypes>(s.inputs[1].dtype, [](auto) {});
    }
    uint32_t value_inputs() const override {
        return (attrs_.crops() && attrs_.has_roi ? 1u << 1 : 0) | (attrs_.has_scales ? 1u << 2 : 0) | (attrs_.has_sizes ? 1u << 3 : 0);
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const ResizePlan plan(attrs_, in);
        const DType dtype = in[0].dtype();
        out[0] = {dtype, plan.to};
        if (attrs_.mode == "nearest")
            return std::make_unique<NearestRun>(plan, in[0].shape(), dtype, attrs_.crops() ? attrs_.extrapolation : 0.0);
        return visit<NumberTypes>(dtype, [&](auto t) -> std::unique_ptr<Prepared> {
            return std::make_unique<BlendRun<decltype(t)>>(plan, in[0].shape(), attrs_.extrapolation);
        });
    }

  private:
    ResizeAttrs attrs_;
};

}  // namespace

void register_resize(Registry& r) {
    r.add("Resize", [](const NodeSpec& s) { return std::make_unique<Resize>(s); });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
