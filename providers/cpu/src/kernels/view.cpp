// Operators that only rename bytes: Identity, Reshape, Flatten, Squeeze, Unsqueeze. The executor aliases their output to
// their input where it can; run() copies where it cannot.
#include <cstring>

#include "core/kernel.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

struct Copy final : Prepared {
    void run(const Context&, const Tensor* in, const Tensor* out) const override {
        if (in[0].data != out[0].data) std::memcpy(out[0].data, in[0].data, out[0].desc.nbytes());
    }
};

class View : public Kernel {
  public:
    int alias() const override { return 0; }
    virtual Shape shape(const Tensor* in) const = 0;
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        out[0] = {in[0].dtype(), shape(in)};
        if (out[0].count() != in[0].count())
            throw BadOperand("input of shape " + in[0].shape().str() + " cannot take the shape " + out[0].shape.str());
        return std::make_unique<Copy>();
    }
};

class Identity final : public View {
    Shape shape(const Tensor* in) const override { return in[0].shape(); }
};

class Reshape final : public View {
  public:
    explicit Reshape(bool allow_zero) : allow_zero_(allow_zero) {}
    uint32_t value_inputs() const override { return 1u << 1; }
    Shape shape(const Tensor* in) const override {
        Shape s;
        int64_t known = 1;
        int open = -1;
        for (int64_t i = 0; i < in[1].count(); ++i) {
            int64_t d = in[1].as<int64_t>()[i];
            if (d == 0 && !allow_zero_) {
                if (i >= in[0].shape().rank) throw BadOperand("shape copies dimension " + std::to_string(i) + ", which the input lacks");
                d = in[0].shape()[static_cast<int>(i)];
            }
            if (d == -1 && open < 0) open = static_cast<int>(i);
            else if (d < 0) throw BadOperand("shape has the invalid dimension " + std::to_string(d));
            else known *= d;
            s.push_back(d);
        }
        if (open >= 0) s[open] = known ? in[0].count() / known : 0;
        return s;
    }

  private:
    bool allow_zero_;
};

int64_t normal_axis(int64_t axis, int rank) {
    if (axis < -rank || axis >= rank) throw BadOperand("axis " + std::to_string(axis) + " is outside a rank of " + std::to_string(rank));
    return axis < 0 ? axis + rank : axis;
}

class Flatten final : public View {
  public:
    explicit Flatten(int64_t axis) : axis_(axis) {}
    Shape shape(const Tensor* in) const override {
        const Shape& s = in[0].shape();
        int axis = static_cast<int>(axis_ == s.rank ? axis_ : normal_axis(axis_, s.rank));
        return {s.count(0, axis), s.count(axis)};
    }

  private:
    int64_t axis_;
};

class Squeeze final : public View {
  public:
    explicit Squeeze(bool all) : all_(all) {}
    uint32_t value_inputs() const override { return all_ ? 0 : 1u << 1; }
    Shape shape(const Tensor* in) const override {
        const Shape& s = in[0].shape();
        bool drop[kMaxRank] = {};
        if (!all_) {
            for (int64_t i = 0; i < in[1].count(); ++i) {
                int64_t a = normal_axis(in[1].as<int64_t>()[i], s.rank);
                if (s[static_cast<int>(a)] != 1) throw BadOperand("cannot squeeze axis " + std::to_string(a) + " of " + s.str());
                drop[a] = true;
            }
        } else {
            for (int i = 0; i < s.rank; ++i) drop[i] = s[i] == 1;
        }
        Shape out;
        for (int i = 0; i < s.rank; ++i)
            if (!drop[i]) out.push_back(s[i]);
        return out;
    }

  private:
    bool all_;  // no axes given: every dimension of 1 goes
};

class Unsqueeze final : public View {
  public:
    uint32_t value_inputs() const override { return 1u << 1; }
    Shape shape(const Tensor* in) const override {
        const Shape& s = in[0].shape();
        int64_t rank = s.rank + in[1].count();
        if (rank > kMaxRank) throw BadOperand("the output has more than 12 dimensions");
        bool added[kMaxRank] = {};
        for (int64_t i = 0; i < in[1].count(); ++i) {
            bool& mark = added[normal_axis(in[1].as<int64_t>()[i], static_cast<int>(rank))];
            if (mark) throw BadOperand("an axis is named twice");
            mark = true;
        }
        Shape out;
        for (int i = 0, from = 0; i < rank; ++i) out.push_back(added[i] ? 1 : s[from++]);
        return out;
    }
};

template <class K, class... Args> Factory view(Args... args) {
    return [=](const NodeSpec&) { return std::make_unique<K>(args...); };
}

}  // namespace

void register_view(Registry& r) {
    r.add("Identity", view<Identity>());
    r.add("Squeeze", [](const NodeSpec& s) { return std::make_unique<Squeeze>(!s.has_input(1)); });
    r.add("Unsqueeze", view<Unsqueeze>());
    r.add("Reshape", [](const NodeSpec& s) { return std::make_unique<Reshape>(s.attrs.integer("allowzero", 0) != 0); });
    r.add("Flatten", [](const NodeSpec& s) { return std::make_unique<Flatten>(s.attrs.integer("axis", 1)); });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
