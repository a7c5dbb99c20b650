// The operators RNN, GRU and LSTM: attributes, weights in panels, element types (rnn.h has the rest).
#include "kernels/rnn.h"

#include "kernels/dtypes.h"
#include "kernels/product.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

struct FloatWeights final : GateWeights {
    PackedB panels;
    explicit FloatWeights(PackedB p) : panels(std::move(p)) {}
    void multiply(int64_t m, const float* a, float* c, int64_t ldc, const Epilogue& e, int threads) const override {
        gemm(m, panels.n, panels.k, a, panels.k, panels.view(), c, ldc, e, threads);
    }
};

// Rows of gates [directions, gates * hidden, k] as panels; R of a GRU in two parts.
GateWeightsList pack_gates(const float* data, const Shape& s, bool in_two) {
    GateWeightsList list;
    const int64_t width = s[1], k = s[2], first = in_two ? width / 3 * 2 : width;
    for (int64_t d = 0; d < s[0]; ++d) {
        const float* from = data + d * width * k;
        list.push_back(std::make_shared<FloatWeights>(pack_b(from, 1, k, k, first)));
        if (in_two) list.push_back(std::make_shared<FloatWeights>(pack_b(from + first * k, 1, k, k, width - first)));
    }
    return list;
}

// float32 of a tensor: its own data, or widened into `held`.
template <class T> const float* floats(const Tensor& t, std::vector<float>& held) {
    if (!t.present()) return nullptr;
    if constexpr (std::is_same_v<T, float>) return t.as<float>();
    held.resize(static_cast<size_t>(t.count()));
    if constexpr (is_narrow<T>) widen(t.as<T>(), held.data(), t.count());
    return held.data();
}
template <class T> std::shared_ptr<const GateWeightsList> pack_tensor(const Tensor& t, bool in_two) {
    std::vector<float> held;
    return std::make_shared<GateWeightsList>(pack_gates(floats<T>(t, held), t.shape(), in_two));
}

using Packed = std::shared_ptr<const GateWeightsList>;

template <class T> class Recurrent final : public Prepared {
  public:
    Recurrent(const RecurrentSpec& spec, RecurrentSizes sizes, Packed w, Packed r, size_t inputs, size_t outputs)
        : spec_(spec), sizes_(sizes), w_(std::move(w)), r_(std::move(r)), inputs_(inputs), outputs_(outputs) {
        workspace = recurrent_workspace(spec, sizes);
        flops = recurrent_flops(spec, sizes);
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const RecurrentWeights weights{w_ ? *w_ : *pack_tensor<T>(in[1], false), r_ ? *r_ : *pack_tensor<T>(in[2], spec_.cell == Cell::Gru)};
        std::vector<float> held[5], wide[3];
        auto input = [&](size_t i, std::vector<float>& h) { return i < inputs_ ? floats<T>(in[i], h) : nullptr; };
        auto output = [&](size_t i) -> float* {
            if (i >= outputs_ || !out[i].present()) return nullptr;
            if constexpr (std::is_same_v<T, float>) return out[i].as<float>();
            wide[i].resize(static_cast<size_t>(out[i].count()));
            return wide[i].data();
        };
        const RecurrentData data{input(0, held[0]), input(3, held[1]), input(5, held[2]), input(6, held[3]), input(7, held[4]),
                                 inputs_ > 4 && in[4].present() ? in[4].as<int32_t>() : nullptr, output(0), output(1), output(2)};
        run_recurrent(spec_, sizes_, weights, data, context.workspace, context.threads);
        if constexpr (is_narrow<T>)
            for (size_t i = 0; i < outputs_; ++i)
                if (out[i].present()) narrow(wide[i].data(), out[i].as<T>(), out[i].count());
    }

  private:
    RecurrentSpec spec_;
    RecurrentSizes sizes_;
    Packed w_, r_;
    size_t inputs_, outputs_;
};

using RecurrentTypes = Types<float, f16, bf16>;

class RecurrentKernel final : public Kernel {
  public:
    RecurrentKernel(const NodeSpec& s, Cell cell) : spec_(recurrent_spec(s, cell)), inputs_(s.inputs.size()), outputs_(s.outputs) {
        for (size_t i = 0; i < 3; ++i)
            if (!s.has_input(i)) throw BadOperand("input " + std::to_string(i) + " is missing");
        dtype_ = s.inputs[0].dtype;
        visit<RecurrentTypes>(dtype_, [](auto) { return 0; });
        w_ = pack_constant(s.inputs[1], false);
        r_ = pack_constant(s.inputs[2], cell == Cell::Gru);
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape &w = in[1].shape(), &r = in[2].shape();
        if (w.rank != 3 || r.rank != 3) throw BadOperand("W and R have three dimensions");
        std::vector<TensorDesc> found(outputs_.size());
        const RecurrentSizes z = recurrent_sizes(spec_, in, inputs_, r[2], found.data(), found.size());
        const int64_t rows = gates_of(spec_.cell) * z.hidden;
        if (w != Shape{spec_.directions, rows, z.input}) throw BadOperand("W has shape " + w.str() + ", expected " + Shape{spec_.directions, rows, z.input}.str());
        if (r != Shape{spec_.directions, rows, z.hidden}) throw BadOperand("R has shape " + r.str() + ", expected " + Shape{spec_.directions, rows, z.hidden}.str());
        for (int i = 0; i < 3; ++i)
            if (in[i].dtype() != dtype_) throw BadOperand("X, W and R differ in type");
        for (size_t i = 0; i < outputs_.size(); ++i)
            if (outputs_[i] != DType::Undefined) out[i] = found[i];
        return visit<RecurrentTypes>(dtype_, [&](auto type) -> std::unique_ptr<Prepared> {
            return std::make_unique<Recurrent<decltype(type)>>(spec_, z, w_, r_, inputs_, outputs_.size());
        });
    }

  private:
    static Packed pack_constant(const Operand& o, bool in_two) {
        if (!o.constant || o.shape.rank != 3) return nullptr;
        const std::string scheme = std::string(in_two ? "gates2-" : "gates-") + std::to_string(kPanel) + name_of(o.dtype) + o.shape.str();
        return packed_as<GateWeightsList>(o.key, scheme, [&] {
            return visit<RecurrentTypes>(o.dtype, [&](auto type) { return pack_tensor<decltype(type)>(*o.constant, in_two); });
        });
    }
    RecurrentSpec spec_;
    size_t inputs_;
    std::vector<DType> outputs_;
    DType dtype_;
    Packed w_, r_;
};

bool takes_alpha(Activation a) {
    return a == Activation::Affine || a == Activation::LeakyRelu || a == Activation::ThresholdedRelu || a == Activation::ScaledTanh ||
           a == Activation::HardSigmoid || a == Activation::Elu;
}
bool takes_beta(Activation a) { return a == Activation::Affine || a == Activation::ScaledTanh || a == Activation::HardSigmoid; }

// Alphas and betas are consumed in order by the functions that have such a parameter.
void read_activations(RecurrentSpec& spec, const Attrs& attrs) {
    std::vector<std::string> names = attrs.texts("activations");
    const size_t each = spec.cell == Cell::Rnn ? 1 : spec.cell == Cell::Gru ? 2 : 3;
    const char* const usual[] = {spec.cell == Cell::Rnn ? "Tanh" : "Sigmoid", "Tanh", "Tanh"};
    for (size_t i = names.size(); names.size() < each * static_cast<size_t>(spec.directions); ++i) names.push_back(usual[i % each]);
    const std::vector<double> alphas = attrs.reals("activation_alpha"), betas = attrs.reals("activation_beta");
    size_t alpha = 0, beta = 0;
    spec.activations.resize(static_cast<size_t>(spec.directions) * 3);
    for (size_t i = 0; i < each * static_cast<size_t>(spec.directions); ++i) {
        ActivationSpec a = activation_named(names[i]);
        if (takes_alpha(a.kind) && alpha < alphas.size()) a.alpha = static_cast<float>(alphas[alpha++]);
        if (takes_beta(a.kind) && beta < betas.size()) a.beta = static_cast<float>(betas[beta++]);
        spec.activations[i / each * 3 + i % each] = a;
    }
}

template <Cell cell> std::unique_ptr<Kernel> make(const NodeSpec& s) { return std::make_unique<RecurrentKernel>(s, cell); }

}  // namespace

RecurrentSpec recurrent_spec(const NodeSpec& s, Cell cell) {
    RecurrentSpec spec;
    spec.cell = cell;
    const std::string direction = s.attrs.text("direction", "forward");
    if (direction != "forward" && direction != "reverse" && direction != "bidirectional") throw BadOperand("direction is '" + direction + "'");
    spec.directions = direction == "bidirectional" ? 2 : 1;
    spec.reverse = direction == "reverse";
    spec.hidden = s.attrs.integer("hidden_size", 0);
    spec.batch_first = s.attrs.integer("layout", 0) != 0;
    spec.input_forget = s.attrs.integer("input_forget", 0) != 0;
    spec.reset_after = s.attrs.integer("linear_before_reset", 0) != 0;
    spec.clip = static_cast<float>(s.attrs.real("clip", 0));
    read_activations(spec, s.attrs);
    return spec;
}

void register_rnn(Registry& r) {
    r.add("RNN", make<Cell::Rnn>);
    r.add("GRU", make<Cell::Gru>);
    r.add("LSTM", make<Cell::Lstm>);
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
