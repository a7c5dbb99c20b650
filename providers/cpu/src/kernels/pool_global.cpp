// Pooling over a whole plane: GlobalAveragePool, GlobalMaxPool, GlobalLpPool; and MaxUnpool, which scatters a pooled plane
// back. Sums run in several independent partial sums, which vectorises them and keeps their rounding error small.
// https://onnx.ai/onnx/operators/onnx__GlobalAveragePool.html, __GlobalLpPool.html, __MaxUnpool.html
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/narrow.h"
#include "kernels/window.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

constexpr int kParts = 64;

template <class A, class T, class Lift, class Join> A reduce_plane(const T* x, int64_t n, A identity, Lift lift, Join join) {
    A parts[kParts];
    std::fill(parts, parts + kParts, identity);
    int64_t i = 0;
    for (; i + kParts <= n; i += kParts)
        for (int j = 0; j < kParts; ++j) parts[j] = join(parts[j], lift(x[i + j]));
    for (int j = 0; i + j < n; ++j) parts[j] = join(parts[j], lift(x[i + j]));
    for (int width = kParts / 2; width > 0; width /= 2)
        for (int j = 0; j < width; ++j) parts[j] = join(parts[j], parts[j + width]);
    return parts[0];
}

struct GlobalMax {
    template <class A, class T> static A of(const T* x, int64_t n, A) {
        return reduce_plane<A>(x, n, -std::numeric_limits<A>::infinity(), [](T v) { return widen(v); },
                               [](A a, A b) { return b > a ? b : a; });
    }
};
struct GlobalAverage {
    template <class A, class T> static A of(const T* x, int64_t n, A) {
        return reduce_plane<A>(x, n, A{0}, [](T v) { return widen(v); }, [](A a, A b) { return a + b; }) / static_cast<A>(n);
    }
};
struct GlobalLp {
    template <class A, class T> static A of(const T* x, int64_t n, A p) {
        auto add = [](A a, A b) { return a + b; };
        auto size = [](T v) { return std::abs(widen(v)); };
        if (p == 1) return reduce_plane<A>(x, n, A{0}, size, add);
        if (p == 2) return std::sqrt(reduce_plane<A>(x, n, A{0}, [&](T v) { return size(v) * size(v); }, add));
        return std::pow(reduce_plane<A>(x, n, A{0}, [&](T v) { return std::pow(size(v), p); }, add), 1 / p);
    }
};

template <class Rule, class T> struct GlobalPool final : Prepared {
    int64_t planes, size, p;
    GlobalPool(int64_t planes_, int64_t size_, int64_t p_) : planes(planes_), size(size_), p(p_) {
        flops = static_cast<double>(planes * size);
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        using A = wide_t<T>;
        parallel_ranges(context.threads, planes, 65536 / std::max<int64_t>(size, 1) + 1, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i)
                out[0].as<T>()[i] = narrow<T>(Rule::template of<A>(in[0].as<T>() + i * size, size, static_cast<A>(p)));
        });
    }
};

template <class Rule> class GlobalKernel final : public Kernel {
  public:
    explicit GlobalKernel(const NodeSpec& s) : p_(s.attrs.integer("p", 2)) {
        if (p_ < 1) throw BadOperand("p is " + std::to_string(p_) + "; it must be positive");
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape& x = in[0].shape();
        if (x.rank < 2) throw BadOperand("the input " + x.str() + " must have batch and channel axes");
        check_size("the input", x);
        out[0] = {in[0].dtype(), x};
        for (int i = 2; i < x.rank; ++i) out[0].shape[i] = 1;
        int64_t planes = x[0] * x[1], size = x.count(2);
        switch (in[0].dtype()) {
            case DType::F32: return std::make_unique<GlobalPool<Rule, float>>(planes, size, p_);
            case DType::F64: return std::make_unique<GlobalPool<Rule, double>>(planes, size, p_);
            case DType::F16: return std::make_unique<GlobalPool<Rule, f16>>(planes, size, p_);
            case DType::BF16: return std::make_unique<GlobalPool<Rule, bf16>>(planes, size, p_);
            default: throw BadOperand(std::string("pooling of ") + name_of(in[0].dtype()));
        }
    }

  private:
    int64_t p_;
};

// Elements are only moved, so that any type of the right width serves. Indices count in the whole inferred output; a wider
// `output_shape` keeps them there, as the reference does.
class Unpool final : public Prepared {
  public:
    Unpool(Shape inferred, Shape asked, size_t width) : inferred_(inferred), asked_(asked), width_(width) {}
    void run(const Context&, const Tensor* in, const Tensor* out) const override {
        std::memset(out[0].data, 0, out[0].desc.nbytes());
        const int64_t* indices = in[1].as<int64_t>();
        int64_t limit = inferred_.count();
        for (int64_t i = 0; i < in[0].count(); ++i) {
            if (indices[i] < 0 || indices[i] >= limit)
                throw BadOperand("index " + std::to_string(indices[i]) + " is outside the unpooled " + inferred_.str());
            int64_t to = place(indices[i]);
            std::memcpy(out[0].as<char>() + to * static_cast<int64_t>(width_), in[0].as<char>() + i * static_cast<int64_t>(width_), width_);
        }
    }

  private:
    int64_t place(int64_t index) const {
        if (inferred_ == asked_) return index;
        int64_t to = 0, scale = 1;
        for (int axis = inferred_.rank - 1; axis >= 0; --axis) {
            to += index % inferred_[axis] * scale;
            index /= inferred_[axis];
            scale *= asked_[axis];
        }
        return to;
    }
    Shape inferred_, asked_;
    size_t width_;
};

class UnpoolKernel final : public Kernel {
  public:
    explicit UnpoolKernel(const NodeSpec& s) : attrs_(s.attrs), asked_(s.has_input(2)) {
        if (!s.has_input(1)) throw BadOperand("the indices are missing");
    }
    uint32_t value_inputs() const override { return 1u << 2; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape& x = in[0].shape();
        if (in[1].shape() != x) throw BadOperand("the indices " + in[1].shape().str() + " differ from the input " + x.str());
        if (in[1].dtype() != DType::I64 || size_of(in[0].dtype()) == 0) throw BadOperand("unpooling needs numbers and int64 indices");
        Window w = window_axes(attrs_, x);
        for (Axis& a : w.axis) {
            a.out = (a.in - 1) * a.stride - a.pad - a.pad_end + a.kernel;
            if (a.out < 0) throw BadOperand("the pads leave a negative output size");
        }
        Shape inferred = w.out_shape(x[0], x[1]), shape = inferred;
        if (asked_) shape = read_shape(in[2], inferred);
        out[0] = {in[0].dtype(), shape};
        return std::make_unique<Unpool>(inferred, shape, size_of(in[0].dtype()));
    }

  private:
    static Shape read_shape(const Tensor& t, const Shape& inferred) {
        if (t.dtype() != DType::I64 || t.shape().rank != 1 || t.count() != inferred.rank)
            throw BadOperand("output_shape must hold " + std::to_string(inferred.rank) + " int64 values");
        Shape s;
        for (int i = 0; i < inferred.rank; ++i) {
            int64_t d = t.as<int64_t>()[i];
            if (d < inferred[i] || d > kMostElements) throw BadOperand("output_shape asks for " + std::to_string(d) + " where the indices span " + std::to_string(inferred[i]));
            s.push_back(d);
        }
        check_size("the output", s);
        return s;
    }
    WindowAttrs attrs_;
    bool asked_;
};

template <class Rule> std::unique_ptr<Kernel> make_global(const NodeSpec& s) { return std::make_unique<GlobalKernel<Rule>>(s); }

}  // namespace

void register_pool_global(Registry& r) {
    r.add("GlobalMaxPool", make_global<GlobalMax>);
    r.add("GlobalAveragePool", make_global<GlobalAverage>);
    r.add("GlobalLpPool", make_global<GlobalLp>);
    r.add("MaxUnpool", [](const NodeSpec& s) { return std::make_unique<UnpoolKernel>(s); });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
