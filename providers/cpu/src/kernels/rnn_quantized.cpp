// com.microsoft.DynamicQuantizeLSTM: an LSTM with 8-bit weights, whose inputs and states are quantised on the way. W and R
// come transposed, [directions, inputs, 4 * hidden], with scales and zero points per direction, or per column.
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.DynamicQuantizeLSTM
#include "kernels/qgemm.h"
#include "kernels/rnn.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

// Numbers of the inputs.
enum : size_t { kX, kW, kR, kBias, kLengths, kInitialH, kInitialC, kPeephole, kWScale, kWZero, kRScale, kRZero, kInputs };

class ByteWeights final : public GateWeights {
  public:
    ByteWeights(const PackedBytes& panels, const float* scales, int step, std::vector<int32_t> zeros)
        : panels_(panels), scales_(scales), step_(step), zeros_(std::move(zeros)) {}

    void multiply(int64_t m, const float* a, float* c, int64_t ldc, const Epilogue& e, int threads) const override {
        const int64_t k = panels_.k, count = m * k;
        uint8_t* bytes = static_cast<uint8_t*>(scratch(2, static_cast<size_t>(count)));
        const DynamicScale s = dynamic_scale(a, count);
        quantize(a, count, s, bytes);
        const ZeroPoint zero{zeros_.data(), step_};
        auto finish = [&](const int32_t* tile, int64_t row, int64_t column, int64_t rows, int64_t columns) {
            float* to = c + row * ldc + column;
            for (int64_t r = 0; r < rows; ++r)
                for (int64_t j = 0; j < columns; ++j)
                    to[r * ldc + j] = static_cast<float>(tile[r * kPanel + j]) * (s.scale * scales_[(column + j) * step_]);
            apply_epilogue(e.at(row, column), rows, columns, to, ldc);
        };
        byte_gemm(m, {bytes, false, k, 1}, {&s.zero, 0}, panels_, zero, finish, threads);
    }

  private:
    const PackedBytes& panels_;
    const float* scales_;
    int step_;
    std::vector<int32_t> zeros_;
};

using PackedList = std::vector<PackedBytes>;
using Packed = std::shared_ptr<const PackedList>;

Packed pack_directions(const Tensor& t) {
    const Shape& s = t.shape();
    auto list = std::make_shared<PackedList>();
    for (int64_t d = 0; d < s[0]; ++d)
        list->push_back(pack_bytes({t.as<uint8_t>() + d * s[1] * s[2], t.dtype() == DType::I8, s[2], 1}, s[1], s[2]));
    return list;
}
Packed pack_constant(const Operand& o) {
    if (!o.constant || o.shape.rank != 3) return nullptr;
    const std::string scheme = "byte-gates-" + std::to_string(kPanel) + "x" + std::to_string(kGroup) + name_of(o.dtype) + o.shape.str();
    return packed_as<PackedList>(o.key, scheme, [&] { return pack_directions(*o.constant); });
}

GateWeightsList weights_of(const PackedList& packed, const Tensor& scale, const Tensor& zero) {
    GateWeightsList list;
    const int64_t directions = static_cast<int64_t>(packed.size()), each = scale.count() / directions;
    for (int64_t d = 0; d < directions; ++d) {
        std::vector<int32_t> zeros(static_cast<size_t>(each));
        for (int64_t j = 0; j < each && zero.present(); ++j)
            zeros[static_cast<size_t>(j)] = zero.dtype() == DType::I8 ? zero.as<int8_t>()[d * each + j] : zero.as<uint8_t>()[d * each + j];
        const PackedBytes& panels = packed[static_cast<size_t>(d)];
        list.push_back(std::make_shared<ByteWeights>(panels, scale.as<float>() + d * each, each == panels.n && each > 1 ? 1 : 0, std::move(zeros)));
    }
    return list;
}

class QuantizedLstm final : public Prepared {
  public:
    QuantizedLstm(const RecurrentSpec& spec, RecurrentSizes sizes, Packed w, Packed r, size_t outputs)
        : spec_(spec), sizes_(sizes), w_(std::move(w)), r_(std::move(r)), outputs_(outputs) {
        workspace = recurrent_workspace(spec, sizes);
        flops = recurrent_flops(spec, sizes);
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const Packed w = w_ ? w_ : pack_directions(in[kW]), r = r_ ? r_ : pack_directions(in[kR]);
        const RecurrentWeights weights{weights_of(*w, in[kWScale], in[kWZero]), weights_of(*r, in[kRScale], in[kRZero])};
        auto output = [&](size_t i) { return i < outputs_ ? out[i].as<float>() : nullptr; };
        const RecurrentData data{in[kX].as<float>(), in[kBias].as<float>(), in[kInitialH].as<float>(), in[kInitialC].as<float>(),
                                 in[kPeephole].as<float>(), in[kLengths].as<int32_t>(), output(0), output(1), output(2)};
        run_recurrent(spec_, sizes_, weights, data, context.workspace, context.threads);
    }

  private:
    RecurrentSpec spec_;
    RecurrentSizes sizes_;
    Packed w_, r_;
    size_t outputs_;
};

class QuantizedLstmKernel final : public Kernel {
  public:
    explicit QuantizedLstmKernel(const NodeSpec& s) : spec_(recurrent_spec(s, Cell::Lstm)), outputs_(s.outputs) {
        if (s.inputs.size() != kInputs) throw BadOperand("DynamicQuantizeLSTM has 12 inputs, not " + std::to_string(s.inputs.size()));
        for (size_t i : {size_t{kX}, size_t{kW}, size_t{kR}, size_t{kWScale}, size_t{kWZero}, size_t{kRScale}, size_t{kRZero}})
            if (!s.has_input(i)) throw BadOperand("input " + std::to_string(i) + " is missing");
        w_ = pack_constant(s.inputs[kW]);
        r_ = pack_constant(s.inputs[kR]);
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        if (in[kX].dtype() != DType::F32) throw BadOperand("X must be float32");
        if (in[kW].shape().rank != 3 || in[kR].shape().rank != 3) throw BadOperand("W and R have three dimensions");
        std::vector<TensorDesc> found(outputs_.size());
        const RecurrentSizes z = recurrent_sizes(spec_, in, kInputs, in[kR].shape()[1], found.data(), found.size());
        check_weights(in[kW], in[kWScale], in[kWZero], {spec_.directions, z.input, 4 * z.hidden});
        check_weights(in[kR], in[kRScale], in[kRZero], {spec_.directions, z.hidden, 4 * z.hidden});
        for (size_t i = 0; i < outputs_.size(); ++i)
            if (outputs_[i] != DType::Undefined) out[i] = found[i];
        return std::make_unique<QuantizedLstm>(spec_, z, w_, r_, outputs_.size());
    }

  private:
    static void check_weights(const Tensor& t, const Tensor& scale, const Tensor& zero, const Shape& wanted) {
        if (t.shape() != wanted || (t.dtype() != DType::I8 && t.dtype() != DType::U8))
            throw BadOperand(std::string("weights are ") + name_of(t.dtype()) + t.shape().str() + ", expected bytes " + wanted.str());
        const int64_t n = scale.count();
        if (scale.dtype() != DType::F32 || (n != wanted[0] && n != wanted[0] * wanted[2])) throw BadOperand("the scale of the weights has shape " + scale.shape().str());
        if (zero.dtype() != t.dtype() || zero.count() != n) throw BadOperand("the zero point of the weights does not match them");
    }
    RecurrentSpec spec_;
    std::vector<DType> outputs_;
    Packed w_, r_;
};

}  // namespace

void register_rnn_quantized(Registry& r) {
    r.add("DynamicQuantizeLSTM", [](const NodeSpec& s) { return std::make_unique<QuantizedLstmKernel>(s); }, "com.microsoft");
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
