// Pad: constant, reflect, edge and wrap; negative pads crop. https://onnx.ai/onnx/operators/onnx__Pad.html
#include "kernels/strided.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

enum class Mode { Constant, Reflect, Edge, Wrap };

int64_t modulo(int64_t a, int64_t n) { return (a % n + n) % n; }

// Where position `at` of the padded dimension comes from; `at` counts from the first element of the data.
int64_t source_of(Mode mode, int64_t at, int64_t extent) {
    switch (mode) {
        case Mode::Constant: return at >= 0 && at < extent ? at : -1;
        case Mode::Edge: return std::clamp<int64_t>(at, 0, extent - 1);
        case Mode::Wrap: return modulo(at, extent);
        case Mode::Reflect: break;
    }
    if (extent == 1) return 0;
    const int64_t period = 2 * (extent - 1), m = modulo(at, period);
    return m < extent ? m : period - m;
}

// Rows of the output: a straight run of the data between units looked up one by one. A unit is what lies behind the last
// dimension that gets pads, and the shapes end with that dimension.
struct PadRun final : Prepared {
    Shape shape, padded;
    int64_t unit = 1;                     // elements
    Mode mode = Mode::Constant;
    int64_t pads[kMaxRank] = {};          // before the data
    int64_t to = 0, from = 0, span = 0;   // last dimension: where its straight run begins, in the output and the data
    size_t element = 0;
    bool valued = false;                  // a constant value is given as input 2

    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        if (padded.count() * unit == 0) return;
        static const char zero[16] = {};
        const char* value = valued ? in[2].as<char>() : zero;
        with_block_copy(element, [&](auto copy) {
            const int64_t row = padded.back(), size = unit * static_cast<int64_t>(element), grain = 65536 / (row * size) + 1;
            parallel_ranges(context.threads, padded.count() / row, grain, [&](int64_t begin, int64_t end) {
                for (int64_t r = begin; r < end; ++r) {
                    const int64_t base = source_row(r);
                    const char* source = base < 0 ? nullptr : in[0].as<char>() + base * size;
                    fill_row(out[0].as<char>() + r * row * size, source, value, copy);
                }
            });
        });
    }

  private:
    int64_t source_row(int64_t r) const {
        int64_t base = 0, stride = shape.back();
        for (int d = padded.rank - 2; d >= 0; --d) {
            const int64_t at = source_of(mode, r % padded[d] - pads[d], shape[d]);
            if (at < 0) return -1;
            r /= padded[d];
            base += at * stride;
            stride *= shape[d];
        }
        return base;
    }

    template <class Copy> void fill_row(char* row, const char* source, const char* value, Copy copy) const {
        const int64_t size = unit * static_cast<int64_t>(element), length = padded.back(), pad = pads[padded.rank - 1];
        auto each = [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const int64_t at = source ? source_of(mode, i - pad, shape.back()) : -1;
                char* to_unit = row + i * size;
                if (at < 0) for (int64_t u = 0; u < unit; ++u) copy(to_unit + u * static_cast<int64_t>(element), value);
                else if (unit == 1) copy(to_unit, source + at * size);
                else std::memcpy(to_unit, source + at * size, static_cast<size_t>(size));
            }
        };
        if (!source || span == 0) return each(0, length);
        each(0, to);
        std::memcpy(row + to * size, source + from * size, static_cast<size_t>(span * size));
        each(to + span, length);
    }
};

class Pad final : public Kernel {
  public:
    Pad(const NodeSpec& s, Mode mode) : mode_(mode), valued_(mode == Mode::Constant && s.has_input(2)), axes_(s.has_input(3)) {
        if (!s.has_input(1)) throw BadOperand("the pads are missing");
    }
    uint32_t value_inputs() const override { return 2u | (axes_ ? 8u : 0); }

    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        int64_t pads[2][kMaxRank] = {};
        read_pads(in, pads);
        if (valued_) {
            expect_dtype(in[2], in[0].dtype(), "the constant value");
            if (in[2].count() != 1) throw BadOperand("the constant value has the shape " + in[2].shape().str());
        }
        auto run = std::make_unique<PadRun>();
        run->shape = in[0].shape();
        out[0] = {in[0].dtype(), padded(run->shape, pads)};
        run->padded = out[0].shape;
        run->element = size_of(in[0].dtype());
        run->valued = valued_;
        if (run->shape.rank == 0) run->shape = run->padded = {1};
        run->mode = mode_;
        std::copy(pads[0], pads[0] + kMaxRank, run->pads);
        take_unit(*run, pads);
        find_span(*run);
        return run;
    }

  private:
    void read_pads(const Tensor* in, int64_t (*pads)[kMaxRank]) const {
        const int rank = in[0].shape().rank;
        expect_dtype(in[1], DType::I64, "pads");
        if (axes_) expect_index_type(in[3]);
        const int64_t count = axes_ ? in[3].count() : rank;
        if (in[1].count() != 2 * count)
            throw BadOperand(std::to_string(in[1].count()) + " pads are given for " + std::to_string(count) + " axes");
        AxisSet seen;
        for (int64_t i = 0; i < count; ++i) {
            const int64_t axis = axes_ ? Indices(in[3])[i] : i;
            seen.add(axis, rank);
            for (int side = 0; side < 2; ++side) pads[side][checked_axis(axis, rank)] = in[1].as<int64_t>()[i + side * count];
        }
    }

    Shape padded(const Shape& shape, const int64_t (*pads)[kMaxRank]) const {
        constexpr int64_t kLimit = int64_t{1} << 58;
        Shape wide = shape;
        for (int i = 0; i < shape.rank; ++i) {
            for (int side = 0; side < 2; ++side)
                if (pads[side][i] < -kLimit || pads[side][i] > kLimit) throw BadOperand("a pad of " + std::to_string(pads[side][i]));
            wide[i] += pads[0][i] + pads[1][i];
            if (wide[i] < 0) throw BadOperand("pads take more than there is of dimension " + std::to_string(i) + " of " + shape.str());
            if (mode_ != Mode::Constant && shape[i] == 0 && wide[i] != 0)
                throw BadOperand("dimension " + std::to_string(i) + " of " + shape.str() + " has nothing to pad with");
        }
        return wide;
    }

    static void take_unit(PadRun& run, const int64_t (*pads)[kMaxRank]) {
        for (int d = run.shape.rank - 1; d > 0 && pads[0][d] == 0 && pads[1][d] == 0; --d) {
            run.unit *= run.shape[d];
            --run.shape.rank;
            --run.padded.rank;
        }
    }

    static void find_span(PadRun& run) {
        const int64_t before = run.pads[run.shape.rank - 1];
        run.from = std::max<int64_t>(-before, 0);
        run.to = std::max<int64_t>(before, 0);
        run.span = std::max<int64_t>(std::min(run.shape.back() - run.from, run.padded.back() - run.to), 0);
    }

    Mode mode_;
    bool valued_, axes_;
};

Mode mode_named(const std::string& name) {
    if (name == "constant") return Mode::Constant;
    if (name == "reflect") return Mode::Reflect;
    if (name == "edge") return Mode::Edge;
    if (name == "wrap") return Mode::Wrap;
    throw BadOperand("the mode is '" + name + "'");
}

}  // namespace

void register_pad(Registry& r) {
    r.add("Pad", [](const NodeSpec& s) -> std::unique_ptr<Kernel> {
        expect_bytes(s);
        return std::make_unique<Pad>(s, mode_named(s.attrs.text("mode", "constant")));
    });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
