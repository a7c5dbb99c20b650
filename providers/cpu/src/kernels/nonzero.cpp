// NonZero and Compress (https://onnx.ai/onnx/operators/): what their outputs hold, and how much, depends on data, so it
// is found in prepare().
#include <algorithm>
#include <cstring>

#include "kernels/axes.h"
#include "kernels/dtypes.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

class RunNonZero final : public Prepared {
  public:
    explicit RunNonZero(std::vector<int64_t> places) : places_(std::move(places)) {}
    void run(const Context&, const Tensor* in, const Tensor* out) const override {
        const Shape& s = in[0].shape();
        const int64_t n = static_cast<int64_t>(places_.size());
        int64_t* y = out[0].as<int64_t>();
        for (int64_t i = 0; i < n; ++i) {
            int64_t at = places_[static_cast<size_t>(i)];
            for (int k = s.rank - 1; k >= 0; --k) {
                y[k * n + i] = at % s[k];
                at /= s[k];
            }
        }
    }

  private:
    std::vector<int64_t> places_;
};

// A scalar gives an output of shape [0, 0] or [0, 1].
class NonZero final : public Kernel {
  public:
    explicit NonZero(const NodeSpec& spec) {
        if (!spec.has_input(0)) throw Unsupported("the first input is missing");
        visit<NumberTypes>(spec.inputs[0].dtype, [](auto) {});
    }
    uint32_t value_inputs() const override { return 1; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        std::vector<int64_t> places;
        const int64_t n = in[0].count();
        visit<NumberTypes>(in[0].dtype(), [&](auto t) {
            const auto* x = in[0].as<decltype(t)>();
            for (int64_t i = 0; i < n; ++i)
                if (widen(x[i]) != 0) places.push_back(i);
        });
        out[0] = {DType::I64, {in[0].shape().rank, static_cast<int64_t>(places.size())}};
        return std::make_unique<RunNonZero>(std::move(places));
    }
};

class RunCompress final : public Prepared {
  public:
    RunCompress(std::vector<int64_t> chosen, const Lanes& lanes) : chosen_(std::move(chosen)), lanes_(lanes) {}
    void run(const Context&, const Tensor* in, const Tensor* out) const override {
        const size_t nbytes = static_cast<size_t>(lanes_.inner) * size_of(in[0].dtype());
        const char* x = in[0].as<char>();
        char* y = out[0].as<char>();
        if (nbytes == 0) return;
        for (int64_t o = 0; o < lanes_.outer; ++o)
            for (int64_t i : chosen_) {
                std::memcpy(y, x + static_cast<size_t>(o * lanes_.length + i) * nbytes, nbytes);
                y += nbytes;
            }
    }

  private:
    std::vector<int64_t> chosen_;
    Lanes lanes_;
};

class Compress final : public Kernel {
  public:
    explicit Compress(const NodeSpec& spec) : flat_(!spec.attrs.has("axis")), axis_(spec.attrs.integer("axis", 0)) {
        if (!spec.has_input(0) || !spec.has_input(1)) throw Unsupported("an input is missing");
        if (size_of(spec.inputs[0].dtype) == 0) throw Unsupported("strings");
    }
    uint32_t value_inputs() const override { return 2; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        Shape s = flat_ ? Shape{in[0].count()} : in[0].shape();
        const int axis = checked_axis(axis_, s.rank);
        const Lanes lanes(s, axis);
        expect_dtype(in[1], DType::Bool, "condition");
        if (in[1].shape().rank != 1) throw BadOperand("the condition must be a list, its shape is " + in[1].shape().str());
        std::vector<int64_t> chosen;
        for (int64_t i = 0, n = in[1].count(); i < n; ++i)
            if (in[1].as<uint8_t>()[i]) chosen.push_back(i);
        if (!chosen.empty() && chosen.back() >= lanes.length)
            throw BadOperand("the condition holds at " + std::to_string(chosen.back()) + ", beyond an axis of " + std::to_string(lanes.length));
        s[axis] = static_cast<int64_t>(chosen.size());
        out[0] = {in[0].dtype(), s};
        return std::make_unique<RunCompress>(std::move(chosen), lanes);
    }

  private:
    bool flat_;
    int64_t axis_;
};

}  // namespace

void register_nonzero(Registry& r) {
    r.add("NonZero", [](const NodeSpec& s) { return std::make_unique<NonZero>(s); });
    r.add("Compress", [](const NodeSpec& s) { return std::make_unique<Compress>(s); });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
