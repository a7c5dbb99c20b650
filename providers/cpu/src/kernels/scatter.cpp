// ScatterElements, ScatterND, TensorScatter: the data with some elements replaced by, or reduced with, updates. Updates
// are applied one after the other, in their order, since several may meet in one element.
// https://onnx.ai/onnx/operators/onnx__ScatterElements.html, __ScatterND.html, __TensorScatter.html
#include <algorithm>

#include "kernels/dtypes.h"
#include "kernels/indices.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

enum class Merge { Replace, Add, Multiply, Max, Min };

// Wraps where integers overflow. A NaN on either side stays.
template <Merge M, class A> A merged(A a, A b) {
    if constexpr (M == Merge::Max) return a != a || a > b ? a : b;
    else if constexpr (M == Merge::Min) return a != a || a < b ? a : b;
    else if constexpr (std::is_integral_v<A>) {
        const uint64_t u = static_cast<uint64_t>(a), v = static_cast<uint64_t>(b);
        return static_cast<A>(M == Merge::Add ? u + v : u * v);
    } else return M == Merge::Add ? a + b : a * b;
}

template <Merge M, class T, class F> void with_merge_of(int64_t n, F&& body) {
    body([n](char* to, const char* from) {
        T* y = reinterpret_cast<T*>(to);
        const T* x = reinterpret_cast<const T*>(from);
        for (int64_t i = 0; i < n; ++i) y[i] = narrow<T>(merged<M>(widen(y[i]), widen(x[i])));
    });
}

// body(f), where f(to, from) merges n elements into those at `to`.
template <class F> void with_merge(Merge merge, DType dtype, int64_t n, F&& body) {
    if (merge == Merge::Replace) return with_block_copy(static_cast<size_t>(n) * size_of(dtype), body);
    visit<NumberTypes>(dtype, [&](auto t) {
        using T = decltype(t);
        switch (merge) {
            case Merge::Add: return with_merge_of<Merge::Add, T>(n, body);
            case Merge::Multiply: return with_merge_of<Merge::Multiply, T>(n, body);
            case Merge::Max: return with_merge_of<Merge::Max, T>(n, body);
            default: return with_merge_of<Merge::Min, T>(n, body);
        }
    });
}

// Of booleans, sums are maxima and products minima.
Merge merge_of(const NodeSpec& s) {
    const std::string name = s.attrs.text("reduction", "none");
    const DType dtype = s.inputs[0].dtype;
    if (name == "none") return Merge::Replace;
    visit<NumberTypes>(dtype, [](auto) {});
    if (name == "max" || (name == "add" && dtype == DType::Bool)) return Merge::Max;
    if (name == "min" || (name == "mul" && dtype == DType::Bool)) return Merge::Min;
    if (name == "add") return Merge::Add;
    if (name == "mul") return Merge::Multiply;
    throw BadOperand("reduction is " + name + ", expected none, add, mul, max or min");
}

void copy_data(const Tensor& from, const Tensor& to) {
    if (from.data != to.data && to.desc.nbytes() > 0) std::memcpy(to.data, from.data, to.desc.nbytes());
}

struct ScatterElementsRun final : Prepared {
    ElementPlaces places;
    Merge merge;
    ScatterElementsRun(const ElementPlaces& p, Merge m) : places(p), merge(m) {}

    void run(const Context&, const Tensor* in, const Tensor* out) const override {
        const size_t size = size_of(in[0].dtype());
        copy_data(in[0], out[0]);
        char* to = out[0].as<char>();
        const char* updates = in[2].as<char>();
        with_merge(merge, in[0].dtype(), 1, [&](auto apply) {
            places.each(Indices(in[1]), 0, places.count(), [&](int64_t i, int64_t at) {
                apply(to + static_cast<size_t>(at) * size, updates + static_cast<size_t>(i) * size);
            });
        });
    }
};

class ScatterElements final : public Kernel {
  public:
    explicit ScatterElements(const NodeSpec& s) : dtype_(s.inputs[0].dtype), axis_(s.attrs.integer("axis", 0)), merge_(merge_of(s)) {}
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        expect_index_type(in[1]);
        expect_dtype(in[0], dtype_, "data");
        expect_dtype(in[2], dtype_, "updates");
        if (in[1].shape() != in[2].shape())
            throw BadOperand("updates of shape " + in[2].shape().str() + " for indices of shape " + in[1].shape().str());
        out[0] = in[0].desc;
        return std::make_unique<ScatterElementsRun>(ElementPlaces(in[0].shape(), in[1].shape(), axis_), merge_);
    }

  private:
    DType dtype_;
    int64_t axis_;
    Merge merge_;
};

struct ScatterNDRun final : Prepared {
    SlicePlaces places;
    Merge merge;
    ScatterNDRun(const SlicePlaces& p, Merge m) : places(p), merge(m) {}

    void run(const Context&, const Tensor* in, const Tensor* out) const override {
        const size_t size = size_of(in[0].dtype()), block = static_cast<size_t>(places.slice) * size;
        copy_data(in[0], out[0]);
        if (block == 0) return;
        const Indices indices(in[1]);
        char* to = out[0].as<char>();
        const char* updates = in[2].as<char>();
        with_merge(merge, in[0].dtype(), places.slice, [&](auto apply) {
            for (int64_t i = 0; i < places.count; ++i)
                apply(to + static_cast<size_t>(places.offset(indices, i)) * size, updates + static_cast<size_t>(i) * block);
        });
    }
};

class ScatterND final : public Kernel {
  public:
    explicit ScatterND(const NodeSpec& s) : dtype_(s.inputs[0].dtype), merge_(merge_of(s)) {}
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape &data = in[0].shape(), &indices = in[1].shape();
        expect_dtype(in[0], dtype_, "data");
        expect_dtype(in[1], DType::I64, "indices");
        expect_dtype(in[2], dtype_, "updates");
        SlicePlaces places(data, indices, 0);
        Shape wanted;
        append_dims(wanted, indices, 0, indices.rank - 1);
        append_dims(wanted, data, places.first_sliced, data.rank);
        if (in[2].shape() != wanted)
            throw BadOperand("updates of shape " + in[2].shape().str() + ", expected " + wanted.str());
        out[0] = in[0].desc;
        return std::make_unique<ScatterNDRun>(places, merge_);
    }

  private:
    DType dtype_;
    Merge merge_;
};

// Steps of the update replace steps of the cache along one axis, from a place that each batch names.
struct TensorScatterRun final : Prepared {
    Lanes cache;
    int64_t steps, per_batch;  // of the update; lanes of one batch
    bool circular, placed;     // placed: write_indices is given

    void run(const Context&, const Tensor* in, const Tensor* out) const override {
        const size_t block = static_cast<size_t>(cache.inner) * size_of(in[0].dtype());
        copy_data(in[0], out[0]);
        if (block == 0 || steps == 0) return;
        char* to = out[0].as<char>();
        const char* update = in[1].as<char>();
        for (int64_t o = 0; o < cache.outer; ++o) {
            int64_t first = placed ? start(in[2].as<int64_t>()[o / per_batch]) : 0;
            int64_t straight = std::min(steps, cache.length - first);
            char* lane = to + static_cast<size_t>(o * cache.length) * block;
            const char* from = update + static_cast<size_t>(o * steps) * block;
            std::memcpy(lane + static_cast<size_t>(first) * block, from, static_cast<size_t>(straight) * block);
            std::memcpy(lane, from + static_cast<size_t>(straight) * block, static_cast<size_t>(steps - straight) * block);
        }
    }

  private:
    int64_t start(int64_t index) const {
        if (circular) return (index % cache.length + cache.length) % cache.length;
        if (index < 0 || index > cache.length - steps)
            throw BadOperand(std::to_string(steps) + " steps from index " + std::to_string(index) + " do not fit a dimension of " + std::to_string(cache.length));
        return index;
    }
};

class TensorScatter final : public Kernel {
  public:
    explicit TensorScatter(const NodeSpec& s) : axis_(s.attrs.integer("axis", -2)), placed_(s.has_input(2)) {
        const std::string mode = s.attrs.text("mode", "linear");
        if (mode != "linear" && mode != "circular") throw BadOperand("mode is " + mode + ", expected linear or circular");
        circular_ = mode == "circular";
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape &cache = in[0].shape(), &update = in[1].shape();
        const int axis = checked_axis(axis_, cache.rank);
        if (axis == 0) throw BadOperand("the axis is that of the batch");
        expect_dtype(in[1], in[0].dtype(), "update");
        bool fits = update.rank == cache.rank && update[axis] <= cache[axis];
        for (int i = 0; fits && i < cache.rank; ++i) fits = i == axis || update[i] == cache[i];
        if (!fits) throw BadOperand("an update of shape " + update.str() + " does not fit a cache of shape " + cache.str());
        if (placed_) {
            expect_dtype(in[2], DType::I64, "write_indices");
            if (in[2].shape() != Shape{cache[0]}) throw BadOperand("write_indices of shape " + in[2].shape().str() + " for a cache of shape " + cache.str());
        }
        out[0] = in[0].desc;
        auto run = std::make_unique<TensorScatterRun>();
        run->cache = Lanes(cache, axis);
        run->steps = update[axis];
        run->per_batch = cache.count(1, axis);
        run->circular = circular_;
        run->placed = placed_;
        return run;
    }

  private:
    int64_t axis_;
    bool placed_, circular_;
};

template <class K> Factory scatter(size_t inputs) {
    return [inputs](const NodeSpec& s) -> std::unique_ptr<Kernel> {
        for (size_t i = 0; i < inputs; ++i)
            if (!s.has_input(i)) throw BadOperand("input " + std::to_string(i) + " is missing");
        expect_bytes(s);
        return std::make_unique<K>(s);
    };
}

}  // namespace

void register_scatter(Registry& r) {
    r.add("ScatterElements", scatter<ScatterElements>(3));
    r.add("ScatterND", scatter<ScatterND>(3));
    r.add("TensorScatter", scatter<TensorScatter>(2));
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
