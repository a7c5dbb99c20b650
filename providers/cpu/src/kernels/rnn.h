// Recurrent nets: RNN, GRU and LSTM differ in a cell; direction, lengths, layout and states are common to all. The
// products of every input with W come first, as one large product; each step then adds H x R^T and runs the cell.
// https://onnx.ai/onnx/operators/onnx__LSTM.html, __GRU.html, __RNN.html
#pragma once

#include <memory>
#include <vector>

#include "kernels/gemm.h"

namespace opweave {
namespace OPWEAVE_ISA {

// The weights of some gates, as the right operand of a product: float32 panels, or 8-bit ones that quantise the left side.
class GateWeights {
  public:
    virtual ~GateWeights() = default;
    // C[m, gates * hidden] = epilogue(A[m, k] x weights). A's rows follow each other.
    virtual void multiply(int64_t m, const float* a, float* c, int64_t ldc, const Epilogue& epilogue, int threads) const = 0;
};
using GateWeightsList = std::vector<std::shared_ptr<const GateWeights>>;

enum class Cell : uint8_t { Rnn, Gru, Lstm };
inline int64_t gates_of(Cell cell) { return cell == Cell::Lstm ? 4 : cell == Cell::Gru ? 3 : 1; }

// Attributes. Activations: three a direction (f, g, h), of which a cell uses the first one, two or three.
struct RecurrentSpec {
    Cell cell = Cell::Lstm;
    int64_t directions = 1, hidden = 0;  // hidden 0: taken from R
    bool reverse = false;                // the only direction goes backwards
    bool batch_first = false, input_forget = false, reset_after = false;  // layout 1; LSTM; GRU's linear_before_reset
    float clip = 0;                      // 0: none
    std::vector<ActivationSpec> activations;
};
RecurrentSpec recurrent_spec(const NodeSpec& s, Cell cell);

struct RecurrentSizes {
    int64_t steps = 0, batch = 0, input = 0, hidden = 0;
};

// How the weights of one call are found: R of a direction in two parts for GRU (update and reset gates, hidden gate).
struct RecurrentWeights {
    GateWeightsList w, r;  // direction after direction
};

// Data of one call, all float32; null where omitted. Input numbers are the operator's.
struct RecurrentData {
    const float *x, *bias, *initial_h, *initial_c, *peephole;
    const int32_t* lengths;
    float *y, *y_h, *y_c;
};

// Checks every operand but W, R and their element types, and gives the outputs their shapes (type `dtype`).
RecurrentSizes recurrent_sizes(const RecurrentSpec& spec, const Tensor* in, size_t inputs, int64_t hidden, TensorDesc* out, size_t outputs);
size_t recurrent_workspace(const RecurrentSpec& spec, const RecurrentSizes& z);
double recurrent_flops(const RecurrentSpec& spec, const RecurrentSizes& z);
void run_recurrent(const RecurrentSpec& spec, const RecurrentSizes& z, const RecurrentWeights& weights, const RecurrentData& data,
                   void* workspace, int threads);

}  // namespace OPWEAVE_ISA
}  // namespace opweave
