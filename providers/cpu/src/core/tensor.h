// Element types, shapes and tensors as the executor and every kernel see them: contiguous, row-major host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>

namespace opweave {

// Values equal ONNX's TensorProto.DataType. Types narrower than a byte are stored one element per byte, as ml_dtypes does.
enum class DType : uint8_t {
    Undefined = 0, F32 = 1, U8 = 2, I8 = 3, U16 = 4, I16 = 5, I32 = 6, I64 = 7, Str = 8, Bool = 9, F16 = 10, F64 = 11,
    U32 = 12, U64 = 13, C64 = 14, C128 = 15, BF16 = 16, F8E4M3FN = 17, F8E4M3FNUZ = 18, F8E5M2 = 19, F8E5M2FNUZ = 20,
    U4 = 21, I4 = 22, F4E2M1 = 23, F8E8M0 = 24, U2 = 25, I2 = 26,
};

// Bytes of one stored element; 0 for Undefined and Str.
size_t size_of(DType dtype);
const char* name_of(DType dtype);

constexpr int kMaxRank = 12;

struct Shape {
    int rank = 0;
    int64_t dims[kMaxRank] = {};

    Shape() = default;
    Shape(std::initializer_list<int64_t> list) {
        for (int64_t d : list) push_back(d);
    }
    int64_t operator[](int i) const { return dims[i]; }
    int64_t& operator[](int i) { return dims[i]; }
    int64_t back() const { return dims[rank - 1]; }
    const int64_t* begin() const { return dims; }
    const int64_t* end() const { return dims + rank; }
    void push_back(int64_t d) {
        if (rank == kMaxRank) throw std::length_error("a tensor has more than 12 dimensions");
        dims[rank++] = d;
    }
    bool operator==(const Shape& o) const {
        if (rank != o.rank) return false;
        for (int i = 0; i < rank; ++i)
            if (dims[i] != o.dims[i]) return false;
        return true;
    }
    bool operator!=(const Shape& o) const { return !(*this == o); }
    // Product of dims[from:to]; throws std::overflow_error past 2^58 elements (2^62 bytes).
    int64_t count(int from = 0, int to = -1) const;
    std::string str() const;
};

struct TensorDesc {
    DType dtype = DType::Undefined;
    Shape shape;
    int64_t count() const { return shape.count(); }
    size_t nbytes() const { return static_cast<size_t>(count()) * size_of(dtype); }
};

// A view: never owns. `data` is null for an omitted operand, and for one whose data is not there yet while preparing.
struct Tensor {
    TensorDesc desc;
    void* data = nullptr;

    const Shape& shape() const { return desc.shape; }
    DType dtype() const { return desc.dtype; }
    int64_t count() const { return desc.count(); }
    bool present() const { return desc.dtype != DType::Undefined; }
    template <class T> T* as() const { return static_cast<T*>(data); }
};

}  // namespace opweave
