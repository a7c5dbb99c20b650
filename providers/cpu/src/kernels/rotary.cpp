// RotaryEmbedding, of ONNX and of com.microsoft (inputs in another order; one position may stand for the first of a run).
// https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html
#include "kernels/attention.h"
#include "kernels/dtypes.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

struct RotarySpec {
    size_t cosine, sine, positions;  // numbers of the inputs
    int64_t heads = 0, rotated = 0;  // 0: from the shapes
    bool interleaved = false, has_positions = false;
    float scale = 1;
};

struct RotarySizes {
    HeadShape x;
    int64_t rotated, rows;  // elements of a head that turn; rows of the tables
    bool first_only;        // a single position for a run
};

template <class T> class Rotary final : public Prepared {
  public:
    Rotary(RotarySpec spec, RotarySizes sizes) : spec_(spec), z_(sizes) {}
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const Heads<const T> x = z_.x.over(const_cast<const T*>(in[0].as<T>()));
        const Heads<T> y = z_.x.over(out[0].as<T>());
        const int64_t half = z_.rotated / 2;
        parallel_ranges(context.threads, z_.x.samples * z_.x.length, 1 + 16384 / std::max<int64_t>(z_.x.heads * z_.x.size, 1), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const int64_t at = table_row(in, i) * half, b = i / z_.x.length, t = i % z_.x.length;
                for (int64_t h = 0; h < z_.x.heads; ++h)
                    turn(x.at(b, h, t), in[spec_.cosine].as<T>() + at, in[spec_.sine].as<T>() + at, half, y.at(b, h, t));
            }
        });
    }

  private:
    int64_t table_row(const Tensor* in, int64_t i) const {
        if (!spec_.has_positions) return i;
        const int64_t* positions = in[spec_.positions].as<int64_t>();
        const int64_t row = z_.first_only ? positions[0] + i % z_.x.length : positions[i];
        if (row < 0 || row >= z_.rows) throw BadOperand("position " + std::to_string(row) + " is outside the tables' " + std::to_string(z_.rows) + " rows");
        return row;
    }
    void turn(const T* x, const T* cosine, const T* sine, int64_t half, T* y) const {
        using W = wide_t<T>;
        const int64_t step = spec_.interleaved ? 2 : 1, other = spec_.interleaved ? 1 : half;
        for (int64_t j = 0; j < half; ++j) {
            const W a = widen(x[j * step]), b = widen(x[j * step + other]), c = widen(cosine[j]), s = widen(sine[j]);
            y[j * step] = narrow<T>((c * a - s * b) * static_cast<W>(spec_.scale));
            y[j * step + other] = narrow<T>((s * a + c * b) * static_cast<W>(spec_.scale));
        }
        std::copy(x + 2 * half, x + z_.x.size, y + 2 * half);
    }
    RotarySpec spec_;
    RotarySizes z_;
};

class RotaryKernel final : public Kernel {
  public:
    RotaryKernel(const NodeSpec& s, RotarySpec spec) : spec_(spec) {
        for (size_t i : {size_t{0}, spec.cosine, spec.sine})
            if (!s.has_input(i)) throw BadOperand("input " + std::to_string(i) + " is missing");
        spec_.has_positions = s.has_input(spec.positions);
        spec_.heads = s.attrs.integer("num_heads", 0);
        spec_.rotated = s.attrs.integer("rotary_embedding_dim", 0);
        spec_.interleaved = s.attrs.integer("interleaved", 0) != 0;
        spec_.scale = static_cast<float>(s.attrs.real("scale", 1));
        if (s.attrs.integer("is_packed_batching", 0) != 0) throw Unsupported("packed batches");
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape &cosine = in[spec_.cosine].shape(), &sine = in[spec_.sine].shape();
        if (cosine != sine || cosine.rank < 1) throw BadOperand("the tables differ: " + cosine.str() + " and " + sine.str());
        for (size_t i : {spec_.cosine, spec_.sine})
            if (in[i].dtype() != in[0].dtype()) throw BadOperand("a table differs in type from the input");
        const Shape& shape = in[0].shape();
        int64_t heads = spec_.heads;
        if (shape.rank == 3 && heads == 0) heads = heads_of_table(shape, cosine);
        const HeadShape x = head_shape(shape, heads, "the input");
        RotarySizes z{x, spec_.rotated ? spec_.rotated : x.size, cosine.count(0, cosine.rank - 1), false};
        if (z.rotated < 0 || z.rotated > x.size || z.rotated % 2 != 0 || cosine.back() * 2 != z.rotated)
            throw BadOperand("tables of " + std::to_string(cosine.back()) + " columns cannot turn " + std::to_string(z.rotated) + " of " + std::to_string(x.size) + " elements");
        check_rows(in, cosine, z);
        out[0] = in[0].desc;
        return visit<FloatTypes>(in[0].dtype(), [&](auto type) -> std::unique_ptr<Prepared> { return std::make_unique<Rotary<decltype(type)>>(spec_, z); });
    }

  private:
    static int64_t heads_of_table(const Shape& x, const Shape& table) {
        const int64_t size = table.back() * 2;
        if (size == 0 || x[2] % size != 0) throw BadOperand("num_heads is missing for an input of shape " + x.str());
        return x[2] / size;
    }
    void check_rows(const Tensor* in, const Shape& table, RotarySizes& z) const {
        const HeadShape& x = z.x;
        if (!spec_.has_positions) {
            if (table != Shape{x.samples, x.length, table.back()}) throw BadOperand("tables " + table.str() + " without positions must have a row for each token");
            return;
        }
        const Tensor& positions = in[spec_.positions];
        z.first_only = spec_.positions == 1 && positions.count() == 1;
        if (positions.dtype() != DType::I64 || table.rank != 2 || (!z.first_only && positions.shape() != Shape{x.samples, x.length}))
            throw BadOperand("positions " + positions.shape().str() + " do not fit the tables " + table.str());
    }
    RotarySpec spec_;
};

}  // namespace

void register_rotary(Registry& r) {
    r.add("RotaryEmbedding", [](const NodeSpec& s) { return std::make_unique<RotaryKernel>(s, RotarySpec{1, 2, 3}); });
    r.add("RotaryEmbedding", [](const NodeSpec& s) { return std::make_unique<RotaryKernel>(s, RotarySpec{2, 3, 1}); }, "com.microsoft");
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
