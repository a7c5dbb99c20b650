// opweave.Tape: elementwise operators fused into one pass. Every block of the output goes through all steps while it lies
// in the first-level cache; a product that only feeds a sum becomes a fused multiply-add. Attributes: `ops`, a name a
// step; `program`, three value numbers a step (-1: omitted), inputs first, then the results of steps; the attributes of
// step 3 as `3.NAME`. The last step's result is the output. Any type that an operator computes in may flow between steps.
#include <algorithm>

#include "kernels/elementwise.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

constexpr int kMostValues = 64;              // inputs and live results together
constexpr size_t kSlotBytes = 256 * kBlock;  // of their blocks: 64 of float32, 32 of float64

struct Step {
    BlockFn fn = nullptr;      // null: a conversion
    Converter convert;
    Params params;
    std::string op;
    int in[3] = {-1, -1, -1};  // value numbers
    DType result = DType::Undefined;
    int uses = 0;
    int slot = -1;             // where the result lies; -1: the output
};

struct Program {
    std::vector<DType> inputs;
    std::vector<Step> steps;
    int slots = 0;             // the inputs have the first ones
    size_t largest = 1;        // bytes of an element

    DType type_of(int value) const {
        const auto i = static_cast<size_t>(value);
        return i < inputs.size() ? inputs[i] : steps[i - inputs.size()].result;
    }
    Step* producer(int value) {
        const int i = value - static_cast<int>(inputs.size());
        return i < 0 ? nullptr : &steps[static_cast<size_t>(i)];
    }
    int slot_of(int value) const {
        const auto i = static_cast<size_t>(value);
        return i < inputs.size() ? value : steps[i - inputs.size()].slot;
    }
};

// x y + z, x y - z, z - x y
struct MulAdd { static vf of(vf x, vf y, vf z) { return x * y + z; } };
struct MulSub { static vf of(vf x, vf y, vf z) { return x * y - z; } };
struct NegMulAdd { static vf of(vf x, vf y, vf z) { return z - x * y; } };
template <class Op> void fused_block(const void* const* in, void* out, int64_t n, const Params&) {
    const float *x = static_cast<const float*>(in[0]), *y = static_cast<const float*>(in[1]), *z = static_cast<const float*>(in[2]);
    float* to = static_cast<float*>(out);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(to + i, Op::of(load(x + i), load(y + i), load(z + i)));
    const int left = static_cast<int>(n - i);
    if (left > 0) store_part(to + i, Op::of(load_part(x + i, left), load_part(y + i, left), load_part(z + i, left)), left);
}

Step make_step(const NodeSpec& tape, const Program& program, size_t index, const std::string& op, const int64_t* operands) {
    const std::string prefix = std::to_string(index) + ".";
    NodeSpec spec{op, "", {}, {}, {}};
    for (auto& [name, value] : tape.attrs.values)
        if (name.compare(0, prefix.size(), prefix) == 0) spec.attrs.values[name.substr(prefix.size())] = value;
    Step step;
    step.op = op;
    const auto known = static_cast<int64_t>(program.inputs.size() + index);
    for (int k = 0; k < 3; ++k) {
        if (operands[k] < -1 || operands[k] >= known) throw BadOperand("step " + prefix + " reads the unknown value " + std::to_string(operands[k]));
        step.in[k] = static_cast<int>(operands[k]);
        spec.inputs.push_back(step.in[k] < 0 ? Operand{} : Operand{program.type_of(step.in[k]), -1, {}, nullptr, ""});
    }
    while (!spec.inputs.empty() && !spec.inputs.back().present()) spec.inputs.pop_back();
    if (op == "Cast") {
        step.result = static_cast<DType>(spec.attrs.integer("to", 0));
        step.convert = Converter(dtype_of_input(spec, 0), step.result);
        return step;
    }
    const Operation operation = operation_of(spec);
    if (operation.computed != operation.result) throw Unsupported("a step that converts its result");
    for (size_t k = 0; k < spec.inputs.size(); ++k)
        if (spec.inputs[k].present() && operation.in[k] != DType::Undefined && operation.in[k] != spec.inputs[k].dtype) throw Unsupported("a step that converts its operands");
    step.fn = operation.fn;
    step.params = operation.params;
    step.result = operation.result;
    return step;
}

// Takes the product into the sum; the product's own step stays, unused.
void fuse_product(Program& program, Step& sum) {
    if (sum.result != DType::F32 || (sum.op != "Add" && sum.op != "Sub")) return;
    for (int side = 0; side < 2; ++side) {
        Step* product = program.producer(sum.in[side]);
        if (!product || product->op != "Mul" || product->uses != 1) continue;
        const int other = sum.in[1 - side];
        sum.fn = sum.op == "Add" ? fused_block<MulAdd> : side == 0 ? fused_block<MulSub> : fused_block<NegMulAdd>;
        sum.op = "MulAdd";
        sum.in[0] = product->in[0];
        sum.in[1] = product->in[1];
        sum.in[2] = other;
        product->uses = 0;
        return;
    }
}

// A result takes the slot of an operand of the same width that nobody reads any more, otherwise a free or a new one.
void assign_slots(Program& program) {
    const int inputs = static_cast<int>(program.inputs.size());
    std::vector<int> left(program.steps.size()), free;
    for (size_t s = 0; s < program.steps.size(); ++s) left[s] = program.steps[s].uses;
    program.slots = inputs;
    for (size_t s = 0; s + 1 < program.steps.size(); ++s) {
        Step& step = program.steps[s];
        if (step.uses == 0) continue;
        std::vector<int> freed;
        for (int value : step.in) {
            Step* from = value < 0 ? nullptr : program.producer(value);
            if (!from || --left[static_cast<size_t>(value - inputs)] > 0) continue;
            if (step.slot < 0 && size_of(from->result) == size_of(step.result)) step.slot = from->slot;
            else freed.push_back(from->slot);
        }
        if (step.slot < 0 && !free.empty()) {
            step.slot = free.back();
            free.pop_back();
        }
        if (step.slot < 0) step.slot = program.slots++;
        free.insert(free.end(), freed.begin(), freed.end());
    }
}

Program make_program(const NodeSpec& spec) {
    Program program;
    for (size_t k = 0; k < spec.inputs.size(); ++k) {
        program.inputs.push_back(dtype_of_input(spec, k));
        program.largest = std::max(program.largest, size_of(program.inputs.back()));
    }
    const auto ops = spec.attrs.texts("ops");
    const auto operands = spec.attrs.integers("program");
    if (ops.empty() || operands.size() != 3 * ops.size()) throw BadOperand("a tape needs three operands a step");
    for (size_t s = 0; s < ops.size(); ++s) {
        program.steps.push_back(make_step(spec, program, s, ops[s], &operands[3 * s]));
        program.largest = std::max(program.largest, size_of(program.steps.back().result));
    }
    if (program.largest > 8) throw Unsupported("elements of more than eight bytes");
    program.steps.back().uses = 1;
    for (Step& step : program.steps)
        for (int value : step.in)
            if (Step* from = value < 0 ? nullptr : program.producer(value)) ++from->uses;
    for (Step& step : program.steps) fuse_product(program, step);
    assign_slots(program);
    if (program.slots > kMostValues || static_cast<size_t>(program.slots) * program.largest * kBlock > kSlotBytes)
        throw Unsupported("a tape with " + std::to_string(program.slots) + " values at once");
    return program;
}

class RunTape final : public Prepared {
  public:
    RunTape(std::shared_ptr<const Program> program, const Tensor* in, const Shape& out) : program_(std::move(program)), count_(out.count()) {
        for (size_t k = 0; k < program_->inputs.size(); ++k) {
            sources_.emplace_back(in[k].desc, out, program_->inputs[k]);
            offsets_.push_back(workspace);
            workspace += sources_.back().workspace();
        }
        for (const Step& step : program_->steps) flops += step.uses ? static_cast<double>(count_) : 0;
        algorithm = "tape";
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        if (count_ == 0) return;
        char* space = static_cast<char*>(context.workspace);
        for (size_t k = 0; k < sources_.size(); ++k) sources_[k].open(in[k].data, space + offsets_[k]);
        parallel_ranges(context.threads, count_, kBlockGrain, [&](int64_t begin, int64_t end) {
            alignas(64) char slots[kSlotBytes];
            for (int64_t at = begin; at < end; at += kBlock) block(space, in, out, at, std::min(kBlock, end - at), slots);
        });
    }

  private:
    void block(const char* space, const Tensor* in, const Tensor* out, int64_t at, int64_t n, char* slots) const {
        const size_t width = static_cast<size_t>(kBlock) * program_->largest;
        const void* data[kMostValues] = {};  // of every slot
        for (size_t k = 0; k < sources_.size(); ++k)
            data[k] = sources_[k].block(in[k].data, space + offsets_[k], at, n, slots + k * width);
        char* result = out[0].as<char>() + at * static_cast<int64_t>(size_of(out[0].dtype()));
        for (const Step& step : program_->steps) {
            if (step.uses == 0) continue;
            const void* operands[3];
            for (int k = 0; k < 3; ++k) operands[k] = step.in[k] < 0 ? nullptr : data[program_->slot_of(step.in[k])];
            char* to = step.slot < 0 ? result : slots + static_cast<size_t>(step.slot) * width;
            if (step.fn) step.fn(operands, to, n, step.params);
            else if (step.convert) step.convert(operands[0], to, n);
            else if (to != operands[0]) std::memcpy(to, operands[0], static_cast<size_t>(n) * size_of(step.result));
            if (step.slot >= 0) data[step.slot] = to;
        }
    }
    std::shared_ptr<const Program> program_;
    std::vector<BlockSource> sources_;
    std::vector<size_t> offsets_;
    int64_t count_;
};

class Tape final : public Kernel {
  public:
    explicit Tape(const NodeSpec& spec) : program_(std::make_shared<Program>(make_program(spec))) {}
    uint32_t inplace() const override {
        uint32_t bits = 0;
        for (size_t k = 0; k < program_->inputs.size(); ++k)
            if (size_of(program_->inputs[k]) == size_of(program_->steps.back().result)) bits |= 1u << k;
        return bits;
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        for (size_t k = 0; k < program_->inputs.size(); ++k)
            if (in[k].dtype() != program_->inputs[k]) throw BadOperand("operand " + std::to_string(k) + " is " + name_of(in[k].dtype()) + ", expected " + name_of(program_->inputs[k]));
        out[0] = {program_->steps.back().result, broadcast_shape(in, program_->inputs.size())};
        return std::make_unique<RunTape>(program_, in, out[0].shape);
    }

  private:
    std::shared_ptr<const Program> program_;
};

}  // namespace

void register_tape(Registry& r) {
    r.add("Tape", [](const NodeSpec& s) { return std::make_unique<Tape>(s); }, "opweave");
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
