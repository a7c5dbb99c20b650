// The run of a recurrent net over its steps, and the cells (rnn.h). No operator is registered here.
#include <algorithm>
#include <cstring>

#include "kernels/rnn.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

void expect_shape(const Tensor& t, const Shape& wanted, const char* name) {
    if (t.shape() != wanted) throw BadOperand(std::string(name) + " has shape " + t.shape().str() + ", expected " + wanted.str());
}

void clip(float* x, int64_t n, float limit) {
    if (limit > 0)
        for (int64_t i = 0; i < n; ++i) x[i] = std::min(limit, std::max(-limit, x[i]));
}
void add_product(float* y, const float* a, const float* b, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] += a[i] * b[i];
}

// One direction of one call.
class Direction {
  public:
    Direction(const RecurrentSpec& spec, const RecurrentSizes& z, const RecurrentWeights& weights, const RecurrentData& data,
              int64_t index, float* workspace)
        : s_(spec), z_(z), d_(data), index_(index), gates_(gates_of(spec.cell)), width_(gates_ * z.hidden),
          act_(spec.activations.data() + 3 * index), w_(*weights.w[static_cast<size_t>(index)]) {
        const size_t parts = spec.cell == Cell::Gru ? 2 : 1;
        for (size_t i = 0; i < parts; ++i) r_[i] = weights.r[static_cast<size_t>(index) * parts + i].get();
        if (d_.peephole) peephole_ = d_.peephole + index * 3 * z.hidden;
        projected_ = workspace;
        gate_rows_ = projected_ + z.steps * z.batch * width_;
        h_ = gate_rows_ + z.batch * width_;
        c_ = h_ + z.batch * z.hidden;
        other_ = c_ + z.batch * z.hidden;
        bias_ = other_ + z.batch * z.hidden;
    }
    static size_t floats(const RecurrentSpec& s, const RecurrentSizes& z) {
        const int64_t width = gates_of(s.cell) * z.hidden;
        return static_cast<size_t>(round_up((z.steps * z.batch + z.batch + 2) * width + 3 * z.batch * z.hidden, 16));
    }

    void run(int threads) {
        load_bias();
        load_states();
        Epilogue e;
        e.column_bias = bias_;
        w_.multiply(z_.steps * z_.batch, d_.x, projected_, width_, e, threads);
        const bool backwards = s_.reverse || index_ == 1;
        for (int64_t i = 0; i < z_.steps; ++i) step(backwards ? z_.steps - 1 - i : i, threads);
        store_states();
    }

  private:
    // Row of (step, sample) in X and in the projections; of a sample's state in the states as stored.
    int64_t row(int64_t t, int64_t b) const { return s_.batch_first ? b * z_.steps + t : t * z_.batch + b; }
    int64_t state_row(int64_t b) const { return s_.batch_first ? b * s_.directions + index_ : index_ * z_.batch + b; }
    int64_t output_row(int64_t t, int64_t b) const {
        return s_.batch_first ? (b * z_.steps + t) * s_.directions + index_ : (t * s_.directions + index_) * z_.batch + b;
    }

    // Wb + Rb, but for the hidden gate of a GRU that resets after the product: its Rb is kept apart, behind.
    void load_bias() {
        std::fill(bias_, bias_ + 2 * width_, 0.f);
        if (!d_.bias) return;
        const float* b = d_.bias + index_ * 2 * width_;
        const int64_t apart = s_.cell == Cell::Gru && s_.reset_after ? z_.hidden : 0;
        for (int64_t j = 0; j < width_; ++j) bias_[j] = b[j] + (j < width_ - apart ? b[width_ + j] : 0.f);
        std::copy(b + 2 * width_ - apart, b + 2 * width_, bias_ + width_);
    }
    void load_states() {
        const int64_t n = z_.hidden;
        for (int64_t b = 0; b < z_.batch; ++b) {
            load_state(d_.initial_h, state_row(b), h_ + b * n);
            load_state(d_.initial_c, state_row(b), c_ + b * n);
        }
    }
    void load_state(const float* from, int64_t row, float* to) const {
        if (from) std::copy(from + row * z_.hidden, from + (row + 1) * z_.hidden, to);
        else std::fill(to, to + z_.hidden, 0.f);
    }
    void store_states() const {
        const int64_t n = z_.hidden;
        for (int64_t b = 0; b < z_.batch; ++b) {
            if (d_.y_h) std::copy(h_ + b * n, h_ + (b + 1) * n, d_.y_h + state_row(b) * n);
            if (d_.y_c) std::copy(c_ + b * n, c_ + (b + 1) * n, d_.y_c + state_row(b) * n);
        }
    }

    void step(int64_t t, int threads) {
        const int64_t n = z_.hidden;
        Epilogue e;
        e.residual = projected_ + row(t, 0) * width_;
        e.ldr = s_.batch_first ? z_.steps * width_ : width_;
        if (s_.cell == Cell::Gru) gru_products(e, threads);
        else r_[0]->multiply(z_.batch, h_, gate_rows_, width_, e, threads);
        parallel_ranges(threads, z_.batch, 1 + 16384 / std::max<int64_t>(width_, 1), [&](int64_t begin, int64_t end) {
            for (int64_t b = begin; b < end; ++b) {
                float* y = d_.y ? d_.y + output_row(t, b) * n : nullptr;
                if (d_.lengths && t >= d_.lengths[b]) {  // past its end a sample keeps its state and gives zeros
                    if (y) std::fill(y, y + n, 0.f);
                    continue;
                }
                cell(b);
                if (y) std::copy(h_ + b * n, h_ + (b + 1) * n, y);
            }
        });
    }

    // The gates as far as products go; in the form that resets before the product, the hidden one takes r * H.
    void gru_products(const Epilogue& projected, int threads) {
        const int64_t n = z_.hidden;
        r_[0]->multiply(z_.batch, h_, gate_rows_, width_, projected, threads);
        for (int64_t b = 0; b < z_.batch; ++b) {
            float* g = gate_rows_ + b * width_;
            clip(g, 2 * n, s_.clip);
            activate(act_[0], g, g, 2 * n);
            if (!s_.reset_after)
                for (int64_t i = 0; i < n; ++i) other_[b * n + i] = g[n + i] * h_[b * n + i];
        }
        if (!s_.reset_after) return r_[1]->multiply(z_.batch, other_, gate_rows_ + 2 * n, width_, projected.at(0, 2 * n), threads);
        Epilogue e;
        e.column_bias = bias_ + width_;
        r_[1]->multiply(z_.batch, h_, gate_rows_ + 2 * n, width_, e, threads);
        for (int64_t b = 0; b < z_.batch; ++b) {
            float* g = gate_rows_ + b * width_;
            const float* x = projected.residual + b * projected.ldr + 2 * n;
            for (int64_t i = 0; i < n; ++i) g[2 * n + i] = x[i] + g[n + i] * g[2 * n + i];
        }
    }

    void cell(int64_t b) {
        float *g = gate_rows_ + b * width_, *h = h_ + b * z_.hidden;
        switch (s_.cell) {
            case Cell::Lstm: return lstm_cell(g, h, c_ + b * z_.hidden, other_ + b * z_.hidden);
            case Cell::Gru: return gru_cell(g, h);
            case Cell::Rnn:
                clip(g, z_.hidden, s_.clip);
                activate(act_[0], g, h, z_.hidden);
        }
    }
    void gru_cell(float* g, float* h) const {
        const int64_t n = z_.hidden;
        clip(g + 2 * n, n, s_.clip);
        activate(act_[1], g + 2 * n, g + 2 * n, n);
        for (int64_t i = 0; i < n; ++i) h[i] = g[2 * n + i] + g[i] * (h[i] - g[2 * n + i]);
    }
    // Gates lie as input, output, forget, cell; peepholes as input, output, forget.
    void lstm_cell(float* g, float* h, float* c, float* squashed) const {
        const int64_t n = z_.hidden;
        float *input = g, *output = g + n, *forget = g + 2 * n, *candidate = g + 3 * n;
        if (peephole_) {
            add_product(input, peephole_, c, n);
            add_product(forget, peephole_ + 2 * n, c, n);
        }
        clip(input, n, s_.clip);
        clip(forget, 2 * n, s_.clip);
        activate(act_[0], input, input, n);
        if (s_.input_forget) for (int64_t i = 0; i < n; ++i) forget[i] = 1 - input[i];
        else activate(act_[0], forget, forget, n);
        activate(act_[1], candidate, candidate, n);
        for (int64_t i = 0; i < n; ++i) c[i] = forget[i] * c[i] + input[i] * candidate[i];
        if (peephole_) add_product(output, peephole_ + n, c, n);
        clip(output, n, s_.clip);
        activate(act_[0], output, output, n);
        activate(act_[2], c, squashed, n);
        for (int64_t i = 0; i < n; ++i) h[i] = output[i] * squashed[i];
    }

    const RecurrentSpec& s_;
    const RecurrentSizes& z_;
    const RecurrentData& d_;
    const int64_t index_, gates_, width_;
    const ActivationSpec* act_;
    const GateWeights& w_;
    const GateWeights* r_[2] = {};
    const float* peephole_ = nullptr;
    float *projected_, *gate_rows_, *h_, *c_, *other_, *bias_;
};

}  // namespace

RecurrentSizes recurrent_sizes(const RecurrentSpec& s, const Tensor* in, size_t inputs, int64_t hidden, TensorDesc* out, size_t outputs) {
    const Shape& x = in[0].shape();
    if (x.rank != 3) throw BadOperand("the input of a recurrent net has three dimensions, not " + x.str());
    if (s.hidden && s.hidden != hidden) throw BadOperand("hidden_size is " + std::to_string(s.hidden) + ", the weights have " + std::to_string(hidden));
    const RecurrentSizes z{x[s.batch_first], x[!s.batch_first], x[2], hidden};
    const int64_t d = s.directions;
    const Shape state = s.batch_first ? Shape{z.batch, d, hidden} : Shape{d, z.batch, hidden};
    auto check = [&](size_t i, const Shape& wanted, const char* name) {
        if (i < inputs && in[i].present()) expect_shape(in[i], wanted, name);
    };
    check(3, {d, 2 * gates_of(s.cell) * hidden}, "B");
    check(4, {z.batch}, "sequence_lens");
    check(5, state, "initial_h");
    if (s.cell == Cell::Lstm) {
        check(6, state, "initial_c");
        check(7, {d, 3 * hidden}, "P");
    }
    for (size_t i = 3; i < std::min<size_t>(inputs, 8); ++i)
        if (in[i].present() && in[i].dtype() != (i == 4 ? DType::I32 : in[0].dtype())) throw BadOperand("input " + std::to_string(i) + " is " + name_of(in[i].dtype()));
    const Shape y = s.batch_first ? Shape{z.batch, z.steps, d, hidden} : Shape{z.steps, d, z.batch, hidden};
    for (size_t i = 0; i < outputs; ++i) out[i] = {in[0].dtype(), i == 0 ? y : state};
    return z;
}

size_t recurrent_workspace(const RecurrentSpec& s, const RecurrentSizes& z) { return Direction::floats(s, z) * 4 * static_cast<size_t>(s.directions); }

double recurrent_flops(const RecurrentSpec& s, const RecurrentSizes& z) {
    return 2.0 * static_cast<double>(s.directions * z.steps * z.batch) * static_cast<double>(gates_of(s.cell) * z.hidden) * static_cast<double>(z.input + z.hidden);
}

void run_recurrent(const RecurrentSpec& s, const RecurrentSizes& z, const RecurrentWeights& weights, const RecurrentData& data,
                   void* workspace, int threads) {
    for (int64_t b = 0; data.lengths && b < z.batch; ++b)
        if (data.lengths[b] < 0 || data.lengths[b] > z.steps) throw BadOperand("sequence_lens holds " + std::to_string(data.lengths[b]) + " of " + std::to_string(z.steps) + " steps");
    const int each = std::max(1, threads / static_cast<int>(s.directions));
    parallel_for(threads, s.directions, [&](int64_t i) {
        Direction(s, z, weights, data, i, static_cast<float*>(workspace) + static_cast<int64_t>(Direction::floats(s, z)) * i).run(each);
    });
}

void register_rnn_run(Registry&) {}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
