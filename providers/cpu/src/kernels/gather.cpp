// Gather, GatherElements, GatherND, for elements of any size.
// https://onnx.ai/onnx/operators/onnx__Gather.html, __GatherElements.html, __GatherND.html
#include <algorithm>

#include "kernels/indices.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

int64_t grain_of(size_t block) { return static_cast<int64_t>(65536 / (block + 8)) + 1; }

// Output block (o, i) is the block of the data at (o, indices[i]).
struct GatherRun final : Prepared {
    Lanes lanes;
    int64_t count;  // indices
    size_t block;   // bytes

    GatherRun(const Lanes& l, int64_t indices, size_t element) : lanes(l), count(indices), block(static_cast<size_t>(l.inner) * element) {}

    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        if (block == 0) return;
        const Indices indices(in[1]);
        const char* data = in[0].as<char>();
        char* to = out[0].as<char>();
        with_block_copy(block, [&](auto copy) {
            parallel_ranges(context.threads, lanes.outer * count, grain_of(block), [&](int64_t begin, int64_t end) {
                for (int64_t r = begin; r < end; ++r) {
                    int64_t from = r / count * lanes.length + indices.checked(r % count, lanes.length);
                    copy(to + static_cast<size_t>(r) * block, data + static_cast<size_t>(from) * block);
                }
            });
        });
    }
};

class Gather final : public Kernel {
  public:
    explicit Gather(const NodeSpec& s) : axis_(s.attrs.integer("axis", 0)) {}
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape& data = in[0].shape();
        const int axis = checked_axis(axis_, data.rank);
        expect_index_type(in[1]);
        out[0].dtype = in[0].dtype();
        out[0].shape = {};
        append_dims(out[0].shape, data, 0, axis);
        append_dims(out[0].shape, in[1].shape(), 0, in[1].shape().rank);
        append_dims(out[0].shape, data, axis + 1, data.rank);
        return std::make_unique<GatherRun>(Lanes(data, axis), in[1].count(), size_of(in[0].dtype()));
    }

  private:
    int64_t axis_;
};

struct GatherElementsRun final : Prepared {
    ElementPlaces places;
    size_t element;

    GatherElementsRun(const ElementPlaces& p, size_t size) : places(p), element(size) {}

    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const Indices indices(in[1]);
        const char* data = in[0].as<char>();
        char* to = out[0].as<char>();
        with_block_copy(element, [&](auto copy) {
            parallel_ranges(context.threads, places.count(), grain_of(element), [&](int64_t begin, int64_t end) {
                places.each(indices, begin, end, [&](int64_t i, int64_t from) {
                    copy(to + static_cast<size_t>(i) * element, data + static_cast<size_t>(from) * element);
                });
            });
        });
    }
};

class GatherElements final : public Kernel {
  public:
    explicit GatherElements(const NodeSpec& s) : axis_(s.attrs.integer("axis", 0)) {}
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        expect_index_type(in[1]);
        out[0] = {in[0].dtype(), in[1].shape()};
        return std::make_unique<GatherElementsRun>(ElementPlaces(in[0].shape(), in[1].shape(), axis_), size_of(in[0].dtype()));
    }

  private:
    int64_t axis_;
};

struct GatherNDRun final : Prepared {
    SlicePlaces places;
    size_t element;

    GatherNDRun(const SlicePlaces& p, size_t size) : places(p), element(size) {}

    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const size_t block = static_cast<size_t>(places.slice) * element;
        if (block == 0) return;
        const Indices indices(in[1]);
        const char* data = in[0].as<char>();
        char* to = out[0].as<char>();
        with_block_copy(block, [&](auto copy) {
            parallel_ranges(context.threads, places.count, grain_of(block), [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i)
                    copy(to + static_cast<size_t>(i) * block, data + static_cast<size_t>(places.offset(indices, i)) * element);
            });
        });
    }
};

class GatherND final : public Kernel {
  public:
    explicit GatherND(const NodeSpec& s) : batch_(s.attrs.integer("batch_dims", 0)) {}
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape &data = in[0].shape(), &indices = in[1].shape();
        expect_dtype(in[1], DType::I64, "indices");
        SlicePlaces places(data, indices, batch_);
        out[0].dtype = in[0].dtype();
        out[0].shape = {};
        append_dims(out[0].shape, indices, 0, indices.rank - 1);
        append_dims(out[0].shape, data, places.first_sliced, data.rank);
        return std::make_unique<GatherNDRun>(places, size_of(in[0].dtype()));
    }

  private:
    int64_t batch_;
};

template <class K> Factory gather() {
    return [](const NodeSpec& s) -> std::unique_ptr<Kernel> {
        expect_bytes(s);
        if (!s.has_input(1)) throw BadOperand("the indices are missing");
        return std::make_unique<K>(s);
    };
}

}  // namespace

void register_gather(Registry& r) {
    r.add("Gather", gather<Gather>());
    r.add("GatherElements", gather<GatherElements>());
    r.add("GatherND", gather<GatherND>());
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
