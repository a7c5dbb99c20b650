// If, Loop and Scan: their bodies are blocks over the slots of the same run.
#include <cstring>

#include "core/program.h"

namespace opweave {

namespace {

const Slot& slot_of(const Run& run, int slot) { return run.slots[static_cast<size_t>(slot)]; }

bool flag(const Slot& slot) {
    if (!slot.is_tensor() || slot.tensor.dtype() != DType::Bool || slot.tensor.count() != 1)
        throw BadOperand("a condition must be one boolean");
    return *slot.tensor.as<uint8_t>() != 0;
}

int64_t integer(const Slot& slot) {
    if (!slot.is_tensor() || slot.tensor.dtype() != DType::I64 || slot.tensor.count() != 1)
        throw BadOperand("a trip count must be one int64");
    return *slot.tensor.as<int64_t>();
}

template <class T> Slot scalar(DType dtype, T value) {
    Slot slot = owned_slot({dtype, {}});
    *slot.tensor.as<T>() = value;
    return slot;
}

// The tensor with axis `from` moved to `to`, copied.
Slot move_axis(const Slot& slot, int from, int to) {
    if (from == to) return slot;
    const Shape& shape = slot.tensor.shape();
    std::vector<int> order;
    for (int i = 0; i < shape.rank; ++i)
        if (i != from) order.push_back(i);
    order.insert(order.begin() + to, from);
    TensorDesc desc{slot.tensor.dtype(), {}};
    std::vector<int64_t> strides;
    for (int axis : order) {
        desc.shape.push_back(shape[axis]);
        strides.push_back(shape.count(axis + 1));
    }
    Slot moved = owned_slot(desc);
    size_t size = size_of(desc.dtype);
    auto* target = moved.tensor.as<char>();
    std::vector<int64_t> index(static_cast<size_t>(shape.rank), 0);
    int64_t source = 0;
    for (int64_t n = desc.count(); n > 0; --n, target += size) {
        std::memcpy(target, slot.tensor.as<char>() + source * static_cast<int64_t>(size), size);
        for (int a = shape.rank - 1; a >= 0; --a) {
            auto k = static_cast<size_t>(a);
            source += strides[k];
            if (++index[k] < desc.shape[a]) break;
            source -= strides[k] * desc.shape[a];
            index[k] = 0;
        }
    }
    return moved;
}

int normal_axis(int64_t axis, int rank) {
    if (axis < -rank || axis >= rank) throw BadOperand("axis " + std::to_string(axis) + " of a tensor of rank " + std::to_string(rank));
    return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Slot item(const Slot& slot, int64_t i) {
    Slot one = slot;
    one.tensor.desc.shape = {};
    for (int a = 1; a < slot.tensor.shape().rank; ++a) one.tensor.desc.shape.push_back(slot.tensor.shape()[a]);
    one.tensor.data = slot.tensor.as<char>() + static_cast<size_t>(i) * one.tensor.desc.nbytes();
    return one;
}

// Takes a body's result out of its slot; an arena value is copied, for the next iteration writes over it.
Slot take(const Run& run, int slot) {
    if (!slot_of(run, slot).set) throw BadOperand("the body gives no value for one of its outputs");
    return persistent(slot_of(run, slot));
}

}  // namespace

void Program::run_if(const Instruction& instruction, Run& run) const {
    const Block& block = instruction.blocks[flag(slot_of(run, instruction.in[0])) ? 0 : 1];
    execute(block, run);
    std::vector<Slot> results;
    for (int slot : block.outputs) results.push_back(take(run, slot));
    clear(block, run);
    for (size_t i = 0; i < instruction.out.size(); ++i)
        if (instruction.out[i] >= 0) run.slots[static_cast<size_t>(instruction.out[i])] = std::move(results[i]);
}

Slot Program::stack(const std::vector<Slot>& items, int value, int64_t axis, bool reverse) const {
    TensorDesc desc = values_[static_cast<size_t>(value)].desc;
    if (items.empty()) {
        if (desc.dtype == DType::Undefined) throw BadOperand("the element type of a scan output of no iteration is not known");
        for (int i = 0; i < desc.shape.rank; ++i) desc.shape[i] = desc.shape[i] < 0 ? 0 : desc.shape[i];
    } else {
        desc = items[0].tensor.desc;
    }
    TensorDesc whole{desc.dtype, {static_cast<int64_t>(items.size())}};
    for (int64_t d : desc.shape) whole.shape.push_back(d);
    Slot stacked = owned_slot(whole);
    size_t nbytes = desc.nbytes();
    for (size_t i = 0; i < items.size(); ++i) {
        const Slot& one = items[reverse ? items.size() - 1 - i : i];
        if (!one.is_tensor() || one.tensor.dtype() != desc.dtype || one.tensor.shape() != desc.shape)
            throw BadOperand("the iterations give scan outputs of different types or shapes");
        if (nbytes) std::memcpy(stacked.tensor.as<char>() + i * nbytes, one.tensor.data, nbytes);
    }
    return move_axis(stacked, 0, normal_axis(axis, whole.shape.rank));
}

void Program::run_loop(const Instruction& instruction, Run& run) const {
    const Block& body = instruction.blocks[0];
    auto given = [&](size_t i) { return i < instruction.in.size() && instruction.in[i] >= 0; };
    int64_t limit = given(0) ? integer(slot_of(run, instruction.in[0])) : INT64_MAX;
    bool going = given(1) ? flag(slot_of(run, instruction.in[1])) : true;
    size_t carried = instruction.in.size() > 2 ? instruction.in.size() - 2 : 0;
    std::vector<Slot> state;
    for (size_t i = 0; i < carried; ++i) state.push_back(given(i + 2) ? slot_of(run, instruction.in[i + 2]) : Slot());
    std::vector<std::vector<Slot>> stacks(body.outputs.size() - 1 - carried);
    for (int64_t step = 0; going && step < limit; ++step) {
        run.slots[static_cast<size_t>(body.inputs[0])] = scalar(DType::I64, step);
        run.slots[static_cast<size_t>(body.inputs[1])] = scalar(DType::Bool, static_cast<uint8_t>(going));
        for (size_t i = 0; i < carried; ++i) run.slots[static_cast<size_t>(body.inputs[i + 2])] = std::move(state[i]);
        execute(body, run);
        going = flag(slot_of(run, body.outputs[0]));
        for (size_t i = 0; i < carried; ++i) state[i] = take(run, body.outputs[i + 1]);
        for (size_t i = 0; i < stacks.size(); ++i) stacks[i].push_back(take(run, body.outputs[i + 1 + carried]));
    }
    clear(body, run);
    for (size_t i = 0; i < instruction.out.size(); ++i) {
        if (instruction.out[i] < 0) continue;
        Slot& out = run.slots[static_cast<size_t>(instruction.out[i])];
        out = i < carried ? persistent(state[i]) : stack(stacks[i - carried], body.outputs[i + 1], 0, false);
    }
}

void Program::run_scan(const Instruction& instruction, Run& run) const {
    const Block& body = instruction.blocks[0];
    const ScanForm& form = instruction.scan;
    size_t states = instruction.in.size() - static_cast<size_t>(form.scanned);
    std::vector<Slot> state, items;
    for (size_t i = 0; i < states; ++i) state.push_back(slot_of(run, instruction.in[i]));
    int64_t length = -1;
    for (size_t i = states; i < instruction.in.size(); ++i) {
        const Slot& whole = slot_of(run, instruction.in[i]);
        if (!whole.is_tensor() || whole.tensor.shape().rank == 0) throw BadOperand("a scan input must be a tensor of rank 1 or more");
        items.push_back(move_axis(whole, normal_axis(form.in_axes[i - states], whole.tensor.shape().rank), 0));
        int64_t n = items.back().tensor.shape()[0];
        if (length >= 0 && n != length) throw BadOperand("the scan inputs have different lengths");
        length = n;
    }
    std::vector<std::vector<Slot>> stacks(body.outputs.size() - states);
    for (int64_t step = 0; step < length; ++step) {
        for (size_t i = 0; i < states; ++i) run.slots[static_cast<size_t>(body.inputs[i])] = std::move(state[i]);
        for (size_t i = 0; i < items.size(); ++i)
            run.slots[static_cast<size_t>(body.inputs[states + i])] = item(items[i], form.in_reverse[i] ? length - 1 - step : step);
        execute(body, run);
        for (size_t i = 0; i < states; ++i) state[i] = take(run, body.outputs[i]);
        for (size_t i = 0; i < stacks.size(); ++i) stacks[i].push_back(take(run, body.outputs[states + i]));
    }
    clear(body, run);
    for (size_t i = 0; i < instruction.out.size(); ++i) {
        if (instruction.out[i] < 0) continue;
        size_t k = i - states;
        run.slots[static_cast<size_t>(instruction.out[i])] =
            i < states ? persistent(state[i]) : stack(stacks[k], body.outputs[i], form.out_axes[k], form.out_reverse[k] != 0);
    }
}

}  // namespace opweave
