// Concat and Split along one axis.
// https://onnx.ai/onnx/operators/onnx__Concat.html, __Split.html
#include "kernels/strided.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

// One operand's share of the tensor that all parts make up.
struct Part {
    StridedCopy copy;
    int64_t offset;  // bytes into the whole
};

enum class Direction { Join, Divide };

Part make_part(const Lanes& whole, int64_t begin, int64_t length, size_t element, Direction direction) {
    const int64_t wide = whole.length * whole.inner, narrow = length * whole.inner;
    const bool join = direction == Direction::Join;
    return {StridedCopy(element, {{whole.outer, join ? narrow : wide, join ? wide : narrow}, {narrow, 1, 1}}),
            begin * whole.inner * static_cast<int64_t>(element)};
}

struct ConcatRun final : Prepared {
    std::vector<Part> parts;
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        for (size_t i = 0; i < parts.size(); ++i)
            parts[i].copy.run(context.threads, in[i].as<char>(), out[0].as<char>() + parts[i].offset);
    }
};

class Concat final : public Kernel {
  public:
    explicit Concat(const NodeSpec& s) : axis_(s.attrs.integer("axis", 0)), count_(s.inputs.size()) {}
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape& first = in[0].shape();
        const int axis = checked_axis(axis_, first.rank);
        Shape whole = first;
        for (size_t i = 1; i < count_; ++i) {
            expect_dtype(in[i], in[0].dtype(), "an input");
            Shape other = in[i].shape();
            if (other.rank != first.rank) throw BadOperand("inputs of shapes " + first.str() + " and " + other.str() + " differ in rank");
            whole[axis] += other[axis];
            other[axis] = first[axis];
            if (other != first)
                throw BadOperand("inputs of shapes " + first.str() + " and " + in[i].shape().str() + " differ off the axis");
        }
        out[0] = {in[0].dtype(), whole};
        auto run = std::make_unique<ConcatRun>();
        const Lanes lanes(whole, axis);
        int64_t begin = 0;
        for (size_t i = 0; i < count_; ++i) {
            const int64_t length = in[i].shape()[axis];
            run->parts.push_back(make_part(lanes, begin, length, size_of(in[0].dtype()), Direction::Join));
            begin += length;
        }
        return run;
    }

  private:
    int64_t axis_;
    size_t count_;
};

struct SplitRun final : Prepared {
    std::vector<Part> parts;
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        for (size_t i = 0; i < parts.size(); ++i)
            if (out[i].present()) parts[i].copy.run(context.threads, in[0].as<char>() + parts[i].offset, out[i].as<char>());
    }
};

class Split final : public Kernel {
  public:
    explicit Split(const NodeSpec& s)
        : axis_(s.attrs.integer("axis", 0)), given_(s.has_input(1)), pieces_(s.attrs.integer("num_outputs", static_cast<int64_t>(s.outputs.size()))), outputs_(s.outputs.size()) {
        if (pieces_ < 1 || pieces_ != static_cast<int64_t>(outputs_))
            throw BadOperand("num_outputs is " + std::to_string(pieces_) + ", the node has " + std::to_string(outputs_) + " outputs");
    }
    uint32_t value_inputs() const override { return given_ ? 1u << 1 : 0; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape& whole = in[0].shape();
        const int axis = checked_axis(axis_, whole.rank);
        const std::vector<int64_t> lengths = given_ ? given(in[1], whole[axis]) : even(whole[axis]);
        auto run = std::make_unique<SplitRun>();
        const Lanes lanes(whole, axis);
        int64_t begin = 0;
        for (size_t i = 0; i < outputs_; ++i) {
            out[i] = {in[0].dtype(), whole};
            out[i].shape[axis] = lengths[i];
            run->parts.push_back(make_part(lanes, begin, lengths[i], size_of(in[0].dtype()), Direction::Divide));
            begin += lengths[i];
        }
        return run;
    }

  private:
    // Equal pieces, the last ones shorter where they do not divide the axis.
    std::vector<int64_t> even(int64_t length) const {
        const int64_t piece = (length + pieces_ - 1) / pieces_;
        std::vector<int64_t> lengths;
        for (int64_t i = 0; i < pieces_; ++i) lengths.push_back(std::clamp<int64_t>(length - i * piece, 0, piece));
        return lengths;
    }
    std::vector<int64_t> given(const Tensor& split, int64_t length) const {
        expect_dtype(split, DType::I64, "split");
        if (split.count() != static_cast<int64_t>(outputs_))
            throw BadOperand("split names " + std::to_string(split.count()) + " pieces, the node has " + std::to_string(outputs_) + " outputs");
        const int64_t* first = split.as<int64_t>();
        std::vector<int64_t> lengths(first, first + split.count());
        int64_t rest = length;
        for (int64_t piece : lengths) {
            if (piece < 0 || piece > rest) throw BadOperand("the pieces of split do not fit a dimension of " + std::to_string(length));
            rest -= piece;
        }
        if (rest != 0) throw BadOperand("the pieces of split leave " + std::to_string(rest) + " of a dimension of " + std::to_string(length));
        return lengths;
    }

    int64_t axis_;
    bool given_;
    int64_t pieces_;
    size_t outputs_;
};

}  // namespace

void register_concat(Registry& r) {
    r.add("Concat", [](const NodeSpec& s) -> std::unique_ptr<Kernel> {
        for (size_t i = 0; i < std::max<size_t>(s.inputs.size(), 1); ++i) expect_bytes(s, i);
        return std::make_unique<Concat>(s);
    });
    r.add("Split", [](const NodeSpec& s) -> std::unique_ptr<Kernel> {
        expect_bytes(s);
        return std::make_unique<Split>(s);
    });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
