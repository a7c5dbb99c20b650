#include "core/tensor.h"

namespace opweave {

size_t size_of(DType dtype) {
    switch (dtype) {
        case DType::Undefined: case DType::Str: return 0;
        case DType::F32: case DType::I32: case DType::U32: return 4;
        case DType::F64: case DType::I64: case DType::U64: case DType::C64: return 8;
        case DType::C128: return 16;
        case DType::F16: case DType::BF16: case DType::I16: case DType::U16: return 2;
        default: return 1;
    }
}

const char* name_of(DType dtype) {
    static const char* const names[] = {"undefined", "float32", "uint8", "int8", "uint16", "int16", "int32", "int64",
        "string", "bool", "float16", "float64", "uint32", "uint64", "complex64", "complex128", "bfloat16",
        "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "uint4", "int4", "float4e2m1", "float8e8m0",
        "uint2", "int2"};
    auto i = static_cast<size_t>(dtype);
    return i < sizeof names / sizeof *names ? names[i] : "unknown";
}

int64_t Shape::count(int from, int to) const {
    if (to < 0) to = rank;
    __int128 n = 1;
    for (int i = from; i < to; ++i) {
        n *= dims[i];
        if (n > (static_cast<__int128>(1) << 58)) throw std::overflow_error("a tensor of shape " + str() + " is too large");
    }
    return static_cast<int64_t>(n);
}

std::string Shape::str() const {
    std::string s = "[";
    for (int i = 0; i < rank; ++i) s += (i ? "," : "") + std::to_string(dims[i]);
    return s + "]";
}

}  // namespace opweave
