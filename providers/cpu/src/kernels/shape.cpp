// Shape and Size, and tensors made from a few numbers: ConstantOfShape, Range, OneHot.
// https://onnx.ai/onnx/operators/onnx__Shape.html, __ConstantOfShape.html, __Range.html, __OneHot.html
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/dtypes.h"
#include "kernels/indices.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 58;

void expect_inputs(const NodeSpec& s, size_t n) {
    for (size_t i = 0; i < n; ++i)
        if (!s.has_input(i)) throw BadOperand("input " + std::to_string(i) + " is missing");
}

// to[0:n] = one element, of any size.
void fill_elements(const Context& context, char* to, int64_t n, const char* element, size_t size) {
    with_block_copy(size, [&](auto copy) {
        parallel_ranges(context.threads, n, 1 << 16, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) copy(to + static_cast<size_t>(i) * size, element);
        });
    });
}

struct Dims final : Prepared {
    Shape dims;
    explicit Dims(const Shape& s) : dims(s) {}
    void run(const Context&, const Tensor*, const Tensor* out) const override {
        std::copy(dims.begin(), dims.end(), out[0].as<int64_t>());
    }
};

class ShapeOf final : public Kernel {
  public:
    explicit ShapeOf(const NodeSpec& s) : start_(s.attrs.integer("start", 0)), end_(s.attrs.integer("end", kMaxRank)) {}
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape& x = in[0].shape();
        Shape dims;
        for (int64_t i = place(start_, x.rank), end = place(end_, x.rank); i < end; ++i) dims.push_back(x[static_cast<int>(i)]);
        out[0] = {DType::I64, {dims.rank}};
        return std::make_unique<Dims>(dims);
    }

  private:
    static int64_t place(int64_t at, int64_t rank) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); }
    int64_t start_, end_;
};

class Size final : public Kernel {
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        out[0] = {DType::I64, {}};
        return std::make_unique<Dims>(Shape{in[0].count()});
    }
};

struct Fill final : Prepared {
    char element[16] = {};
    size_t size;
    explicit Fill(const Tensor* value) : size(value ? size_of(value->dtype()) : sizeof(float)) {
        if (value) std::memcpy(element, value->data, size);
    }
    void run(const Context& context, const Tensor*, const Tensor* out) const override {
        fill_elements(context, out[0].as<char>(), out[0].count(), element, size);
    }
};

class ConstantOfShape final : public Kernel {
  public:
    explicit ConstantOfShape(const NodeSpec& s) : attrs_(s.attrs) {
        const Tensor* value = attrs_.tensor("value");
        if (!value) return;
        if (size_of(value->dtype()) == 0) throw Unsupported("no native kernel for strings");
        if (value->count() != 1) throw BadOperand("value must hold one element, its shape is " + value->shape().str());
    }
    uint32_t value_inputs() const override { return 1; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Tensor* value = attrs_.tensor("value");
        out[0] = {value ? value->dtype() : DType::F32, listed_shape(in[0], "shape")};
        out[0].count();
        return std::make_unique<Fill>(value);
    }

  private:
    Attrs attrs_;  // owns the value
};

// How many steps of `delta` lead from `start` to before `limit`.
template <class T> int64_t range_count(T start, T limit, T delta) {
    if (delta == 0) throw BadOperand("delta is 0");
    if constexpr (std::is_integral_v<T>) {
        __int128 span = static_cast<__int128>(limit) - start, step = delta;
        if (step < 0) span = -span, step = -step;
        __int128 n = span <= 0 ? 0 : (span + step - 1) / step;
        if (n > kMostElements) throw BadOperand("the range has too many elements");
        return static_cast<int64_t>(n);
    } else {
        double n = std::ceil((static_cast<double>(limit) - static_cast<double>(start)) / static_cast<double>(delta));
        if (!(n <= static_cast<double>(kMostElements))) throw BadOperand("the range has too many elements, or bounds that are not numbers");
        return n > 0 ? static_cast<int64_t>(n) : 0;
    }
}

template <class T> struct RangeRun final : Prepared {
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const auto start = widen(*in[0].as<T>()), delta = widen(*in[2].as<T>());
        T* to = out[0].as<T>();
        parallel_ranges(context.threads, out[0].count(), 1 << 15, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                if constexpr (std::is_integral_v<T>)
                    to[i] = static_cast<T>(static_cast<uint64_t>(start) + static_cast<uint64_t>(i) * static_cast<uint64_t>(delta));
                else to[i] = narrow<T>(start + static_cast<wide_t<T>>(i) * delta);
            }
        });
    }
};

class Range final : public Kernel {
  public:
    explicit Range(DType dtype) : dtype_(dtype) {}
    uint32_t value_inputs() const override { return 7; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        static const char* const names[] = {"start", "limit", "delta"};
        for (int i = 0; i < 3; ++i) {
            expect_dtype(in[i], dtype_, names[i]);
            if (in[i].count() != 1) throw BadOperand(std::string(names[i]) + " must be a scalar, its shape is " + in[i].shape().str());
        }
        return visit<NumberTypes>(dtype_, [&](auto t) -> std::unique_ptr<Prepared> {
            using T = decltype(t);
            out[0] = {dtype_, {range_count(widen(*in[0].as<T>()), widen(*in[1].as<T>()), widen(*in[2].as<T>()))}};
            return std::make_unique<RangeRun<T>>();
        });
    }

  private:
    DType dtype_;
};

// A number as int64, as a cast would have it; what no int64 holds becomes -2^63.
template <class T> int64_t whole(T value) {
    constexpr int64_t none = std::numeric_limits<int64_t>::min();
    if constexpr (is_real<T>) {
        const double d = widen(value);
        return d > -0x1p63 && d < 0x1p63 ? static_cast<int64_t>(d) : none;
    } else if constexpr (std::is_same_v<T, uint64_t>) {
        return value >> 63 ? none : static_cast<int64_t>(value);
    } else {
        return value;
    }
}

// Index i of block (o, c) of the input sets element (o, index, c) of the output; an index outside the depth sets none.
struct OneHotRun final : Prepared {
    int64_t depth, inner;
    size_t size;
    OneHotRun(int64_t d, int64_t c, size_t s) : depth(d), inner(c), size(s) {}

    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        if (out[0].count() == 0) return;
        const char* values = in[2].as<char>();
        char* to = out[0].as<char>();
        fill_elements(context, to, out[0].count(), values, size);
        visit<NumberTypes>(in[0].dtype(), [&](auto t) {
            const auto* indices = in[0].as<decltype(t)>();
            for (int64_t i = 0, n = in[0].count(); i < n; ++i) {
                int64_t index = whole(indices[i]);
                if (index < -depth || index >= depth) continue;
                int64_t at = (i / inner * depth + (index < 0 ? index + depth : index)) * inner + i % inner;
                std::memcpy(to + static_cast<size_t>(at) * size, values + size, size);
            }
        });
    }
};

class OneHot final : public Kernel {
  public:
    explicit OneHot(const NodeSpec& s) : axis_(s.attrs.integer("axis", -1)), indices_(s.inputs[0].dtype) {
        visit<NumberTypes>(indices_, [](auto) {});
    }
    uint32_t value_inputs() const override { return 1u << 1; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape& x = in[0].shape();
        expect_dtype(in[0], indices_, "indices");
        if (in[1].count() != 1) throw BadOperand("depth must hold one number, its shape is " + in[1].shape().str());
        if (in[2].count() != 2) throw BadOperand("values must hold two elements, its shape is " + in[2].shape().str());
        if (x.rank == kMaxRank) throw BadOperand("the output has more than 12 dimensions");
        const int axis = checked_axis(axis_, x.rank + 1);
        const int64_t depth = visit<NumberTypes>(in[1].dtype(), [&](auto t) { return whole(*in[1].as<decltype(t)>()); });
        if (depth < 0) throw BadOperand("the depth is negative, or no number");
        out[0].dtype = in[2].dtype();
        out[0].shape = {};
        append_dims(out[0].shape, x, 0, axis);
        out[0].shape.push_back(depth);
        append_dims(out[0].shape, x, axis, x.rank);
        out[0].count();
        return std::make_unique<OneHotRun>(depth, x.count(axis), size_of(in[2].dtype()));
    }

  private:
    int64_t axis_;
    DType indices_;
};

}  // namespace

void register_shape(Registry& r) {
    r.add("Shape", [](const NodeSpec& s) {
        expect_bytes(s);
        return std::make_unique<ShapeOf>(s);
    });
    r.add("Size", [](const NodeSpec& s) {
        expect_bytes(s);
        return std::make_unique<Size>();
    });
    r.add("ConstantOfShape", [](const NodeSpec& s) {
        expect_inputs(s, 1);
        return std::make_unique<ConstantOfShape>(s);
    });
    r.add("Range", [](const NodeSpec& s) {
        expect_inputs(s, 3);
        visit<NumberTypes>(s.inputs[0].dtype, [](auto) {});
        return std::make_unique<Range>(s.inputs[0].dtype);
    });
    r.add("OneHot", [](const NodeSpec& s) {
        expect_inputs(s, 3);
        expect_bytes(s, 2);
        visit<NumberTypes>(s.inputs[1].dtype, [](auto) {});
        return std::make_unique<OneHot>(s);
    });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
