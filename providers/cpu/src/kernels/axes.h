// Axes of operators that work along some dimensions: checks, and the split of a shape around one axis.
#pragma once

#include "core/kernel.h"

namespace opweave {
namespace OPWEAVE_ISA {

// `axis` in [-rank, rank) as a number from the front.
inline int checked_axis(int64_t axis, int rank) {
    if (axis < -rank || axis >= rank)
        throw BadOperand("axis " + std::to_string(axis) + " is outside a rank of " + std::to_string(rank));
    return static_cast<int>(axis < 0 ? axis + rank : axis);
}

// Element (o, i, c) of a tensor seen along one axis lies at (o * length + i) * inner + c.
struct Lanes {
    int64_t outer = 1, length = 1, inner = 1;
    Lanes() = default;
    Lanes(const Shape& s, int axis) : outer(s.count(0, axis)), length(s[axis]), inner(s.count(axis + 1)) {}
};

struct AxisSet {
    bool has[kMaxRank] = {};
    void add(int64_t axis, int rank) {
        bool& mark = has[checked_axis(axis, rank)];
        if (mark) throw BadOperand("axis " + std::to_string(axis) + " is named twice");
        mark = true;
    }
};

inline void expect_dtype(const Tensor& t, DType wanted, const char* name) {
    if (t.dtype() != wanted)
        throw BadOperand(std::string(name) + " is " + name_of(t.dtype()) + ", expected " + name_of(wanted));
}

// The single integer (int32 or int64) that an operand of one element holds; its data is read.
inline int64_t scalar_int(const Tensor& t, const char* name) {
    if (!t.data || t.count() != 1) throw BadOperand(std::string(name) + " must hold one integer, its shape is " + t.shape().str());
    if (t.dtype() == DType::I32) return *t.as<int32_t>();
    expect_dtype(t, DType::I64, name);
    return *t.as<int64_t>();
}

// The dimensions that an int64 operand of rank 1 lists; its data is read.
inline Shape listed_shape(const Tensor& t, const char* name) {
    expect_dtype(t, DType::I64, name);
    if (t.shape().rank != 1) throw BadOperand(std::string(name) + " must have one dimension, its shape is " + t.shape().str());
    if (t.count() > kMaxRank) throw BadOperand(std::string(name) + " lists more than 12 dimensions");
    Shape s;
    for (int64_t i = 0; i < t.count(); ++i) {
        int64_t d = t.as<int64_t>()[i];
        if (d < 0) throw BadOperand(std::string(name) + " has the negative dimension " + std::to_string(d));
        s.push_back(d);
    }
    return s;
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
