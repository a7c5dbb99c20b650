// Conversions between element types (https://onnx.ai/onnx/operators/onnx__Cast.html), for Cast and for every kernel that
// computes in another type than it stores.
#pragma once

#include "core/kernel.h"

namespace opweave {
namespace OPWEAVE_ISA {

struct CastRules {
    enum class Round : uint8_t { Up, Down, Nearest };
    bool saturate = true;      // to float8: out of range gives the largest value, not infinity or NaN
    Round round = Round::Up;   // to float8e8m0 only
};

// At most three steps, through a type the processor knows.
class Converter {
  public:
    Converter() = default;  // converts nothing: copies no bytes
    // Throws Unsupported for strings and complex numbers.
    Converter(DType from, DType to, CastRules rules = {});
    explicit operator bool() const { return steps_ > 0; }
    void operator()(const void* from, void* to, int64_t n) const;

    using Step = void (*)(const void* from, void* to, int64_t n, CastRules rules);

  private:
    void add(Step step, DType to);
    int steps_ = 0;
    Step step_[3] = {};
    size_t from_size_ = 0, size_[3] = {};
    CastRules rules_;
};

}  // namespace OPWEAVE_ISA
}  // namespace opweave
