// ReverseSequence, for elements of any size. https://onnx.ai/onnx/operators/onnx__ReverseSequence.html
#include "kernels/indices.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

// The first lens[batch] steps of every sequence are reversed. Time and batch are the first two dimensions, in either order.
struct Reverse final : Prepared {
    int64_t steps, batches;
    bool time_first;
    size_t block;  // bytes of one step of one sequence

    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        if (block == 0) return;
        const int64_t* lens = in[1].as<int64_t>();
        const char* from = in[0].as<char>();
        char* to = out[0].as<char>();
        with_block_copy(block, [&](auto copy) {
            parallel_ranges(context.threads, batches * steps, static_cast<int64_t>(65536 / block) + 1, [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                    int64_t batch = time_first ? i % batches : i / steps, t = time_first ? i / batches : i % steps;
                    int64_t length = lens[batch];
                    if (length < 0 || length > steps)
                        throw BadOperand("a sequence of length " + std::to_string(length) + " among " + std::to_string(steps) + " steps");
                    int64_t source = t < length ? length - 1 - t : t;
                    int64_t at = time_first ? source * batches + batch : batch * steps + source;
                    copy(to + static_cast<size_t>(i) * block, from + static_cast<size_t>(at) * block);
                }
            });
        });
    }
};

class ReverseSequence final : public Kernel {
  public:
    explicit ReverseSequence(const NodeSpec& s) : time_(s.attrs.integer("time_axis", 0)), batch_(s.attrs.integer("batch_axis", 1)) {
        if (time_ + batch_ != 1 || time_ * batch_ != 0)
            throw BadOperand("time_axis is " + std::to_string(time_) + " and batch_axis " + std::to_string(batch_) + "; they must be 0 and 1");
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape& x = in[0].shape();
        expect_dtype(in[1], DType::I64, "sequence_lens");
        if (x.rank < 2) throw BadOperand("the input must have at least 2 dimensions, its shape is " + x.str());
        const int batch = static_cast<int>(batch_);
        if (in[1].shape() != Shape{x[batch]})
            throw BadOperand("sequence_lens of shape " + in[1].shape().str() + " for " + std::to_string(x[batch]) + " sequences");
        out[0] = in[0].desc;
        auto reverse = std::make_unique<Reverse>();
        reverse->steps = x[static_cast<int>(time_)];
        reverse->batches = x[batch];
        reverse->time_first = time_ == 0;
        reverse->block = static_cast<size_t>(x.count(2)) * size_of(in[0].dtype());
        return reverse;
    }

  private:
    int64_t time_, batch_;
};

}  // namespace

void register_reverse(Registry& r) {
    r.add("ReverseSequence", [](const NodeSpec& s) {
        expect_bytes(s);
        if (!s.has_input(1)) throw BadOperand("sequence_lens is missing");
        return std::make_unique<ReverseSequence>(s);
    });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
