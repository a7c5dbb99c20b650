// Runs the instructions of a program.
#include <chrono>
#include <cstring>

#include "core/program.h"

namespace opweave {

namespace {

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string describe(const Instruction& instruction, const Run& run) {
    std::string text;
    for (int slot : instruction.in) {
        if (!text.empty()) text += ", ";
        if (slot < 0 || !run.slots[static_cast<size_t>(slot)].set) text += "-";
        else if (run.slots[static_cast<size_t>(slot)].object) text += "object";
        else {
            const Tensor& t = run.slots[static_cast<size_t>(slot)].tensor;
            text += name_of(t.dtype()) + t.shape().str();
        }
    }
    return text;
}

// Bytes of the tensors that an instruction reads and writes, each counted once.
size_t moved(const Instruction& instruction, const Run& run) {
    size_t nbytes = 0;
    for (const std::vector<int>* slots : {&instruction.in, &instruction.out})
        for (int slot : *slots)
            if (slot >= 0 && run.slots[static_cast<size_t>(slot)].is_tensor()) nbytes += run.slots[static_cast<size_t>(slot)].tensor.desc.nbytes();
    return nbytes;
}

[[noreturn]] void fail(const Instruction& instruction, const Run& run, const std::string& what) {
    throw NodeFailure(instruction.name, instruction.operator_name(), describe(instruction, run), what);
}

void add_desc(std::vector<int64_t>& key, const TensorDesc& desc) {
    key.push_back(static_cast<int64_t>(desc.dtype) << 8 | desc.shape.rank);
    key.insert(key.end(), desc.shape.begin(), desc.shape.end());
}

// False: the data is too long to be a key.
bool add_data(std::vector<int64_t>& key, const Tensor& tensor) {
    size_t nbytes = tensor.desc.nbytes();
    if (nbytes > 256) return false;
    size_t at = key.size();
    key.resize(at + (nbytes + 7) / 8, 0);
    if (nbytes) std::memcpy(key.data() + at, tensor.data, nbytes);
    return true;
}

}  // namespace

Slot owned_slot(const TensorDesc& desc) {
    Slot slot;
    auto buffer = cached_buffer(desc.nbytes());
    slot.tensor = {desc, buffer.get()};
    slot.owner = std::move(buffer);
    slot.place = Place::Owned;
    slot.set = true;
    return slot;
}

Slot persistent(const Slot& slot) {
    if (!slot.is_tensor() || (slot.place != Place::Arena && slot.place != Place::Output)) return slot;
    Slot copy = owned_slot(slot.tensor.desc);
    std::memcpy(copy.tensor.data, slot.tensor.data, slot.tensor.desc.nbytes());
    return copy;
}

void Program::execute(const Block& block, Run& run) const {
    for (const Instruction& instruction : block.code) {
        try {
            step(instruction, run);
        } catch (const BadOperand& e) {
            fail(instruction, run, e.what());
        } catch (const OutOfMemory& e) {
            fail(instruction, run, e.what());
        } catch (const std::logic_error& e) {  // a rank or a size over what a tensor may have
            fail(instruction, run, e.what());
        } catch (const std::overflow_error& e) {
            fail(instruction, run, e.what());
        } catch (const std::bad_alloc&) {
            fail(instruction, run, "the system has no memory left");
        }
        for (int slot : instruction.release) run.slots[static_cast<size_t>(slot)] = Slot();
    }
}

void Program::step(const Instruction& instruction, Run& run) const {
    double start = run.profile ? now() : 0;
    run.flops = 0, run.algorithm = "";
    switch (instruction.kind) {
        case Kind::Native: run_native(instruction, run); break;
        case Kind::Call: run_call(instruction, run); break;
        case Kind::If: return run_if(instruction, run);
        case Kind::Loop: return run_loop(instruction, run);
        case Kind::Scan: return run_scan(instruction, run);
    }
    if (!run.profile) return;
    run.profile->push_back({&instruction, now() - start, run.flops, moved(instruction, run), run.algorithm});
}

void Program::gather_inputs(const Instruction& instruction, Run& run) const {
    for (size_t i = 0; i < instruction.in.size(); ++i) {
        int slot = instruction.in[i];
        if (slot < 0) {
            run.operands[i] = Tensor{};
            continue;
        }
        const Slot& value = run.slots[static_cast<size_t>(slot)];
        if (!value.is_tensor()) throw BadOperand("input " + std::to_string(i) + " is not a tensor");
        DType wanted = values_[static_cast<size_t>(slot)].desc.dtype;
        if (value.tensor.dtype() != wanted)
            throw BadOperand("input " + std::to_string(i) + " has element type " + name_of(value.tensor.dtype()) + ", not " + name_of(wanted));
        run.operands[i] = value.tensor;
    }
}

void Program::run_alias(const Instruction& instruction, const TensorDesc& desc, Run& run) const {
    const Slot& source = run.slots[static_cast<size_t>(instruction.in[static_cast<size_t>(instruction.kernel->alias())])];
    Slot& target = run.slots[static_cast<size_t>(instruction.out[0])];
    target.tensor = {desc, source.tensor.data};
    target.owner = source.owner;
    target.place = source.place;
    target.set = true;
}

void Program::run_native(const Instruction& instruction, Run& run) const {
    if (!instruction.prepared) return run_dynamic(instruction, run);
    gather_inputs(instruction, run);
    if (instruction.kernel->alias() >= 0 && instruction.out[0] >= 0)
        return run_alias(instruction, values_[static_cast<size_t>(instruction.out[0])].desc, run);
    Tensor* out = run.operands.data() + instruction.in.size();
    for (size_t i = 0; i < instruction.out.size(); ++i) {
        int slot = instruction.out[i];
        if (slot < 0) {
            out[i] = Tensor{};
            continue;
        }
        Slot& value = run.slots[static_cast<size_t>(slot)];
        const ValueInfo& info = values_[static_cast<size_t>(slot)];
        if (info.offset < 0 && !info.direct) value = owned_slot(info.desc);
        out[i] = value.tensor;
    }
    run.flops = instruction.prepared->flops, run.algorithm = instruction.prepared->algorithm;
    instruction.prepared->run({run.threads, run.workspace.get()}, run.operands.data(), out);
}

void Program::run_dynamic(const Instruction& instruction, Run& run) const {
    gather_inputs(instruction, run);
    run.key.clear();
    bool keyed = true;
    uint32_t wanted = instruction.kernel->value_inputs();
    for (size_t i = 0; i < instruction.in.size(); ++i) {
        add_desc(run.key, run.operands[i].desc);
        bool constant = instruction.in[i] >= 0 && values_[static_cast<size_t>(instruction.in[i])].constant;
        if (i < 32 && wanted >> i & 1 && !constant && run.operands[i].present())
            keyed = keyed && add_data(run.key, run.operands[i]);
    }
    PreparedCache::Found entry = keyed ? instruction.cache->find(run.key) : nullptr;
    if (!entry) {
        auto made = std::make_shared<PreparedCache::Entry>();
        made->outputs.resize(instruction.out.size());
        made->prepared = instruction.kernel->prepare(run.operands.data(), made->outputs.data());
        made->key = run.key;
        if (keyed) instruction.cache->add(made);
        entry = made;
    }
    if (instruction.kernel->alias() >= 0 && instruction.out[0] >= 0) return run_alias(instruction, entry->outputs[0], run);
    Tensor* out = run.operands.data() + instruction.in.size();
    for (size_t i = 0; i < instruction.out.size(); ++i) {
        int slot = instruction.out[i];
        out[i] = Tensor{};
        if (slot < 0 || entry->outputs[i].dtype == DType::Undefined) continue;
        run.slots[static_cast<size_t>(slot)] = owned_slot(entry->outputs[i]);
        out[i] = run.slots[static_cast<size_t>(slot)].tensor;
    }
    auto workspace = cached_buffer(entry->prepared->workspace);
    run.flops = entry->prepared->flops, run.algorithm = entry->prepared->algorithm;
    entry->prepared->run({run.threads, workspace.get()}, run.operands.data(), out);
}

void Program::run_call(const Instruction& instruction, Run& run) const {
    std::vector<const Slot*> in;
    std::vector<Slot*> out;
    for (int slot : instruction.in) in.push_back(slot < 0 ? nullptr : &run.slots[static_cast<size_t>(slot)]);
    for (int slot : instruction.out) out.push_back(slot < 0 ? nullptr : &run.slots[static_cast<size_t>(slot)]);
    instruction.callable->run(in, out);
    for (int slot : instruction.out) {
        if (slot < 0 || !values_[static_cast<size_t>(slot)].known) continue;
        const TensorDesc& wanted = values_[static_cast<size_t>(slot)].desc;
        const Slot& got = run.slots[static_cast<size_t>(slot)];
        if (!got.is_tensor() || got.tensor.dtype() != wanted.dtype || got.tensor.shape() != wanted.shape)
            throw ShapeSurprise("'" + instruction.name + "' does not give the shape " + wanted.shape.str() + " that was inferred");
    }
}

}  // namespace opweave
