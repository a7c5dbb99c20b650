// MaxPool, AveragePool and LpPool over one to three spatial axes. Each output row is made in two steps: the input rows
// under the window are reduced into one padded buffer (unit stride, so it vectorises whatever the window), then the buffer
// is reduced along the row. Windows too wide for the buffer, and MaxPool's indices, visit every tap instead.
// https://onnx.ai/onnx/operators/onnx__MaxPool.html, __AveragePool.html, __LpPool.html
#include <cmath>
#include <limits>

#include "kernels/narrow.h"
#include "kernels/window.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

constexpr int64_t kRowBuffer = 2048;  // elements of the buffer on the stack

struct PoolOptions {
    WindowAttrs window;
    bool include_pad = false;   // AveragePool
    bool column_major = false;  // MaxPool's indices
    int64_t p = 2;              // LpPool
    bool indices = false;       // MaxPool: the second output is wanted
};

// A rule reduces values of T: identity(), lift(x) of one input, join(a, b), and finish(a, count) of a window.
template <class T> struct MaxRule {
    using A = wide_t<T>;
    explicit MaxRule(const PoolOptions&) {}
    static A identity() {
        return std::numeric_limits<A>::has_infinity ? -std::numeric_limits<A>::infinity() : std::numeric_limits<A>::lowest();
    }
    A lift(T x) const { return widen(x); }
    A join(A a, A b) const { return b > a ? b : a; }
    T finish(A a, A) const { return narrow<T>(a); }
};

template <class T> struct AverageRule {
    using A = wide_t<T>;
    explicit AverageRule(const PoolOptions&) {}
    static A identity() { return 0; }
    A lift(T x) const { return widen(x); }
    A join(A a, A b) const { return a + b; }
    T finish(A a, A count) const { return narrow<T>(a / count); }
};

template <class T, int kPower> struct LpRule {  // kPower 0: any other power, by pow()
    using A = wide_t<T>;
    A p;
    explicit LpRule(const PoolOptions& o) : p(static_cast<A>(o.p)) {}
    static A identity() { return 0; }
    A lift(T x) const {
        A a = std::abs(widen(x));
        return kPower == 1 ? a : kPower == 2 ? a * a : std::pow(a, p);
    }
    A join(A a, A b) const { return a + b; }
    T finish(A a, A) const { return narrow<T>(kPower == 1 ? a : kPower == 2 ? std::sqrt(a) : std::pow(a, 1 / p)); }
};

// How many positions each window covers along one axis, pads included or not; never those that ceil_mode adds at the end.
template <class A> std::vector<A> covered(const Axis& a, bool include_pad) {
    std::vector<A> counts(static_cast<size_t>(a.out));
    for (int64_t o = 0; o < a.out; ++o) {
        int64_t within = floor_div(a.in + a.pad_end - 1 - a.start(o), a.dilation) + 1;
        counts[static_cast<size_t>(o)] = static_cast<A>(
            include_pad ? std::max<int64_t>(0, std::min(a.kernel, within)) : a.end_tap(o) - a.first_tap(o));
    }
    return counts;
}

template <class T, class Rule> class Pool final : public Prepared {
  public:
    using A = wide_t<T>;
    Pool(const PoolOptions& o, const Window& w, int64_t planes) : rule_(o), w_(w), column_major_(o.column_major), indices_(o.indices), planes_(planes) {
        if (planes * w.out_size() == 0) return;
        for (int i = 0; i < 3; ++i) counts_[i] = covered<A>(w.axis[i], o.include_pad);
        flops = static_cast<double>(planes * w.out_size()) * static_cast<double>(w.taps());
    }

    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const Axis &d = w_.axis[0], &h = w_.axis[1], &row = w_.axis[2];
        if (planes_ * w_.out_size() == 0) return;
        const T* x = in[0].as<T>();
        T* y = out[0].as<T>();
        int64_t* indices = indices_ ? out[1].as<int64_t>() : nullptr;
        bool direct = indices || row.extent() > kRowBuffer / 2 || row.stride > kRowBuffer / 16;
        double work = static_cast<double>(row.out) * static_cast<double>(w_.taps());
        int64_t grain = static_cast<int64_t>(65536 / std::max(work, 1.0)) + 1;
        parallel_ranges(context.threads, planes_ * d.out * h.out, grain, [&](int64_t begin, int64_t end) {
            for (int64_t r = begin; r < end; ++r) {
                int64_t plane = r / (d.out * h.out), od = r / h.out % d.out, oh = r % h.out;
                const T* from = x + plane * w_.in_size();
                if (direct) direct_row(from, plane, od, oh, y + r * row.out, indices ? indices + r * row.out : nullptr);
                else buffered_row(from, od, oh, y + r * row.out);
            }
        });
    }

  private:
    A rows_covered(int64_t od, int64_t oh) const { return counts_[0][static_cast<size_t>(od)] * counts_[1][static_cast<size_t>(oh)]; }

    template <class F> void each_input_row(const T* plane, int64_t od, int64_t oh, F&& f) const {
        const Axis &d = w_.axis[0], &h = w_.axis[1];
        for (int64_t i = d.first_tap(od); i < d.end_tap(od); ++i)
            for (int64_t j = h.first_tap(oh); j < h.end_tap(oh); ++j)
                f(plane + ((d.start(od) + i * d.dilation) * h.in + h.start(oh) + j * h.dilation) * w_.axis[2].in);
    }

    void buffered_row(const T* plane, int64_t od, int64_t oh, T* y) const {
        const Axis& a = w_.axis[2];
        int64_t step = (kRowBuffer - a.extent()) / a.stride + 1;
        alignas(64) A buffer[kRowBuffer];
        alignas(64) A sums[kRowBuffer];
        for (int64_t from = 0; from < a.out; from += step) {
            int64_t n = std::min(step, a.out - from), span = (n - 1) * a.stride + a.extent(), x0 = a.start(from);
            int64_t lo = std::min(span, std::max<int64_t>(0, -x0)), hi = std::max(lo, std::min(span, a.in - x0));
            std::fill(buffer, buffer + span, Rule::identity());
            each_input_row(plane, od, oh, [&](const T* row) {
                for (int64_t i = lo; i < hi; ++i) buffer[i] = rule_.join(buffer[i], rule_.lift(row[x0 + i]));
            });
            reduce_along(buffer, sums, n);
            const A *columns = counts_[2].data() + from, rows = rows_covered(od, oh);
            for (int64_t i = 0; i < n; ++i) y[from + i] = rule_.finish(sums[i], rows * columns[i]);
        }
    }

    void reduce_along(const A* buffer, A* sums, int64_t n) const {
        const Axis& a = w_.axis[2];
        if (a.stride == 1) reduce_strided<1>(buffer, sums, n);
        else if (a.stride == 2) reduce_strided<2>(buffer, sums, n);
        else reduce_strided<0>(buffer, sums, n);
    }

    template <int kStride> void reduce_strided(const A* buffer, A* sums, int64_t n) const {
        const Axis& a = w_.axis[2];
        const int64_t stride = kStride ? kStride : a.stride;
        for (int64_t i = 0; i < n; ++i) sums[i] = buffer[i * stride];
        for (int64_t k = 1; k < a.kernel; ++k) {
            const A* shifted = buffer + k * a.dilation;
            for (int64_t i = 0; i < n; ++i) sums[i] = rule_.join(sums[i], shifted[i * stride]);
        }
    }

    void direct_row(const T* plane_data, int64_t plane, int64_t od, int64_t oh, T* y, int64_t* indices) const {
        const Axis& a = w_.axis[2];
        for (int64_t o = 0; o < a.out; ++o) {
            A best = Rule::identity();
            int64_t at = -1;
            each_input_row(plane_data, od, oh, [&](const T* row) {
                for (int64_t k = a.first_tap(o); k < a.end_tap(o); ++k) {
                    int64_t column = a.start(o) + k * a.dilation;
                    A value = rule_.lift(row[column]), joined = rule_.join(best, value);
                    if (at < 0 || joined != best) at = row + column - plane_data;
                    best = joined;
                }
            });
            y[o] = rule_.finish(best, rows_covered(od, oh) * counts_[2][static_cast<size_t>(o)]);
            if (indices) indices[o] = at < 0 ? -1 : index_of(plane, at);
        }
    }

    int64_t index_of(int64_t plane, int64_t at) const {
        const Axis &d = w_.axis[0], &h = w_.axis[1], &row = w_.axis[2];
        int64_t base = plane * w_.in_size();
        if (!column_major_) return base + at;
        int64_t i = at / (h.in * row.in), j = at / row.in % h.in, k = at % row.in;
        return base + i + d.in * (j + h.in * k);
    }

    Rule rule_;
    Window w_;
    bool column_major_, indices_;
    int64_t planes_;
    std::vector<A> counts_[3];
};

template <class T> using LpRule1 = LpRule<T, 1>;
template <class T> using LpRule2 = LpRule<T, 2>;
template <class T> using LpRuleAny = LpRule<T, 0>;

template <template <class> class Rule, class T>
std::unique_ptr<Prepared> make_pool(const PoolOptions& o, const Window& w, int64_t planes) {
    return std::make_unique<Pool<T, Rule<T>>>(o, w, planes);
}

using Maker = std::unique_ptr<Prepared> (*)(const PoolOptions&, const Window&, int64_t);

template <template <class> class Rule> Maker float_maker(DType dtype) {
    switch (dtype) {
        case DType::F32: return make_pool<Rule, float>;
        case DType::F64: return make_pool<Rule, double>;
        case DType::F16: return make_pool<Rule, f16>;
        case DType::BF16: return make_pool<Rule, bf16>;
        default: throw Unsupported(std::string("pooling of ") + name_of(dtype));
    }
}

Maker max_maker(DType dtype) {
    if (dtype == DType::U8) return make_pool<MaxRule, uint8_t>;
    if (dtype == DType::I8) return make_pool<MaxRule, int8_t>;
    return float_maker<MaxRule>(dtype);
}

class PoolKernel final : public Kernel {
  public:
    PoolKernel(PoolOptions options, DType dtype, Maker maker)
        : options_(std::move(options)), dtype_(dtype), maker_(maker) {
        if (options_.window.kernel.empty()) throw BadOperand("kernel_shape is missing");
        if (options_.p < 1) throw BadOperand("p is " + std::to_string(options_.p) + "; it must be positive");
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape& x = in[0].shape();
        if (in[0].dtype() != dtype_) throw BadOperand(std::string("the input is ") + name_of(in[0].dtype()) + ", not " + name_of(dtype_));
        Window w = place_window(options_.window, x);
        out[0] = {in[0].dtype(), w.out_shape(x[0], x[1])};
        if (options_.indices) out[1] = {DType::I64, out[0].shape};
        return maker_(options_, w, x[0] * x[1]);
    }

  private:
    PoolOptions options_;
    DType dtype_;
    Maker maker_;
};

Factory pool(Maker (*maker)(const PoolOptions&, DType)) {
    return [maker](const NodeSpec& s) -> std::unique_ptr<Kernel> {
        if (!s.has_input(0)) throw BadOperand("the input is missing");
        if (s.inputs[0].rank > 5) throw Unsupported("pooling over more than three spatial axes");
        PoolOptions o{WindowAttrs(s.attrs), s.attrs.integer("count_include_pad", 0) != 0,
                      s.attrs.integer("storage_order", 0) != 0, s.attrs.integer("p", 2), s.has_output(1)};
        return std::make_unique<PoolKernel>(o, s.inputs[0].dtype, maker(o, s.inputs[0].dtype));
    };
}

}  // namespace

void register_pool(Registry& r) {
    r.add("MaxPool", pool([](const PoolOptions&, DType t) { return max_maker(t); }));
    r.add("AveragePool", pool([](const PoolOptions&, DType t) { return float_maker<AverageRule>(t); }));
    r.add("LpPool", pool([](const PoolOptions& o, DType t) {
        return o.p == 1 ? float_maker<LpRule1>(t) : o.p == 2 ? float_maker<LpRule2>(t) : float_maker<LpRuleAny>(t);
    }));
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
