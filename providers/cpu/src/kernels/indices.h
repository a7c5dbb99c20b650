// Operators whose indices are data (Gather*, Scatter*): every index is checked before it is used. Elements are moved by
// their size, whatever their type.
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/axes.h"

namespace opweave {
namespace OPWEAVE_ISA {

// Kernels that move bytes take every type but strings.
inline void expect_bytes(const NodeSpec& s, size_t input = 0) {
    if (!s.has_input(input)) throw BadOperand("input " + std::to_string(input) + " is missing");
    if (size_of(s.inputs[input].dtype) == 0) throw Unsupported(std::string("no native kernel for ") + name_of(s.inputs[input].dtype));
}

inline void expect_index_type(const Tensor& t) {
    if (t.dtype() != DType::I32 && t.dtype() != DType::I64)
        throw BadOperand(std::string("indices are ") + name_of(t.dtype()) + ", expected int32 or int64");
}

inline void append_dims(Shape& to, const Shape& from, int begin, int end) {
    for (int i = begin; i < end; ++i) {
        if (to.rank == kMaxRank) throw BadOperand("the output has more than 12 dimensions");
        to.push_back(from[i]);
    }
}

inline int64_t checked_index(int64_t index, int64_t limit) {
    if (index < -limit || index >= limit)
        throw BadOperand("index " + std::to_string(index) + " is outside a dimension of " + std::to_string(limit));
    return index < 0 ? index + limit : index;
}

// Reads int32 or int64 indices.
class Indices {
  public:
    explicit Indices(const Tensor& t) : narrow_(t.dtype() == DType::I32), data_(t.data) {}
    int64_t operator[](int64_t i) const {
        return narrow_ ? static_cast<const int32_t*>(data_)[i] : static_cast<const int64_t*>(data_)[i];
    }
    int64_t checked(int64_t i, int64_t limit) const { return checked_index((*this)[i], limit); }

  private:
    bool narrow_;
    const void* data_;
};

// Copies blocks of a fixed number of bytes: a single move where the block is one element.
template <class F> void with_block_copy(size_t nbytes, F&& body) {
    auto fixed = [](auto size) {
        return [](char* to, const char* from) { std::memcpy(to, from, decltype(size)::value); };
    };
    switch (nbytes) {
        case 1: return body(fixed(std::integral_constant<size_t, 1>{}));
        case 2: return body(fixed(std::integral_constant<size_t, 2>{}));
        case 4: return body(fixed(std::integral_constant<size_t, 4>{}));
        case 8: return body(fixed(std::integral_constant<size_t, 8>{}));
        case 16: return body(fixed(std::integral_constant<size_t, 16>{}));
        default: return body([nbytes](char* to, const char* from) { std::memcpy(to, from, nbytes); });
    }
}

// GatherElements, ScatterElements: element i of `indices` addresses the element of `data` at the same place but for
// `axis`, where the index tells.
class ElementPlaces {
  public:
    ElementPlaces(const Shape& data, const Shape& indices, int64_t axis) : indices_(indices), axis_(checked_axis(axis, data.rank)) {
        if (indices.rank != data.rank)
            throw BadOperand("indices of shape " + indices.str() + " do not have the rank of the data, " + data.str());
        for (int i = 0; i < data.rank; ++i) {
            if (i != axis_ && indices[i] > data[i])
                throw BadOperand("indices of shape " + indices.str() + " reach past the data, " + data.str());
            stride_[i] = data.count(i + 1);
        }
        limit_ = data[axis_];
    }
    int64_t count() const { return indices_.count(); }

    // f(i, offset into the data) for i in [begin, end).
    template <class F> void each(const Indices& indices, int64_t begin, int64_t end, F&& f) const {
        const int64_t row = indices_.back(), step = axis_ == indices_.rank - 1 ? 0 : 1;
        for (int64_t i = begin; i < end;) {
            int64_t column = i % row, stop = std::min(end, i - column + row), base = row_base(i / row) + column * step;
            for (; i < stop; ++i, base += step) f(i, base + indices.checked(i, limit_) * stride_[axis_]);
        }
    }

  private:
    int64_t row_base(int64_t row) const {
        int64_t base = 0;
        for (int d = indices_.rank - 2; d >= 0; --d) {
            if (d != axis_) base += row % indices_[d] * stride_[d];
            row /= indices_[d];
        }
        return base;
    }

    Shape indices_;
    int axis_;
    int64_t limit_ = 0, stride_[kMaxRank] = {};
};

// GatherND, ScatterND: each row of `indices` addresses a slice of the data, below `batch` leading dimensions they share.
class SlicePlaces {
  public:
    SlicePlaces(const Shape& data, const Shape& indices, int64_t batch) {
        if (indices.rank == 0 || data.rank == 0) throw BadOperand("neither the data nor the indices may be a scalar");
        if (batch < 0 || batch >= std::min(data.rank, indices.rank)) throw BadOperand("batch_dims is " + std::to_string(batch));
        const int b = static_cast<int>(batch);
        for (int i = 0; i < b; ++i)
            if (data[i] != indices[i])
                throw BadOperand("batch dimensions differ: data " + data.str() + ", indices " + indices.str());
        if (indices.back() < 1 || indices.back() > data.rank - b)
            throw BadOperand("rows of " + std::to_string(indices.back()) + " indices cannot address data of shape " + data.str());
        depth_ = static_cast<int>(indices.back());
        for (int i = 0; i < depth_; ++i) {
            limit_[i] = data[b + i];
            stride_[i] = data.count(b + i + 1);
        }
        first_sliced = b + depth_;
        slice = data.count(first_sliced);
        count = indices.count(0, indices.rank - 1);
        per_batch_ = indices.count(b, indices.rank - 1);
        batch_stride_ = data.count(b);
    }

    // Where the slice of row `i` begins in the data.
    int64_t offset(const Indices& indices, int64_t i) const {
        int64_t at = i / per_batch_ * batch_stride_;
        for (int d = 0; d < depth_; ++d) at += indices.checked(i * depth_ + d, limit_[d]) * stride_[d];
        return at;
    }

    int first_sliced = 0;      // first dimension of the data that belongs to a slice
    int64_t slice = 0;         // elements of a slice
    int64_t count = 0;         // slices addressed

  private:
    int depth_ = 0;
    int64_t limit_[kMaxRank] = {}, stride_[kMaxRank] = {}, per_batch_ = 0, batch_stride_ = 0;
};

}  // namespace OPWEAVE_ISA
}  // namespace opweave
