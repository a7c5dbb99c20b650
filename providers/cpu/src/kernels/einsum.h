// The equation of an Einsum, and the strided loops that rearrange its operands.
// https://onnx.ai/onnx/operators/onnx__Einsum.html
#pragma once

#include <string>
#include <vector>

#include "core/kernel.h"

namespace opweave {
namespace OPWEAVE_ISA {

using Labels = std::vector<int>;  // letters, or numbers from kEllipsis on: dimensions under "..."
constexpr int kEllipsis = 256;

struct Equation {
    std::vector<std::string> terms;  // an ellipsis is one '.'
    std::string output;
    bool explicit_output = false;
};

// Throws Unsupported when the text is no equation for so many operands.
Equation parse_equation(const std::string& text, size_t operands);

struct LabelledShapes {
    std::vector<Labels> terms;
    Labels output;
    std::vector<int64_t> sizes;  // by label
};
// The labels of every dimension and their sizes (a size of 1 is repeated); throws BadOperand where shapes do not fit.
LabelledShapes label(const Equation& equation, const std::vector<Shape>& shapes);

}  // namespace OPWEAVE_ISA
}  // namespace opweave
