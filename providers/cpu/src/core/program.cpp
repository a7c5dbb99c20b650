// Builds a program: kernels, preparations where all shapes are known, and the lives of the values.
#include "core/program.h"

#include <algorithm>

namespace opweave {

namespace {

bool complete(const ValueInfo& value) {
    if (!value.ranked || value.desc.dtype == DType::Undefined || value.desc.dtype == DType::Str) return false;
    return std::all_of(value.desc.shape.begin(), value.desc.shape.end(), [](int64_t d) { return d >= 0; });
}

void collect_block(const Block& block, std::vector<int>& slots) {
    for (const Instruction& inner : block.code) collect_reads(inner, slots);
    slots.insert(slots.end(), block.outputs.begin(), block.outputs.end());
}

}  // namespace

void collect_reads(const Instruction& instruction, std::vector<int>& slots) {
    for (int slot : instruction.in)
        if (slot >= 0) slots.push_back(slot);
    for (const Block& block : instruction.blocks) collect_block(block, slots);
}

PreparedCache::Found PreparedCache::find(const std::vector<int64_t>& key) {
    std::lock_guard lock(mutex_);
    for (size_t i = entries_.size(); i-- > 0;) {
        if (entries_[i]->key != key) continue;
        std::rotate(entries_.begin() + static_cast<ptrdiff_t>(i), entries_.begin() + static_cast<ptrdiff_t>(i) + 1, entries_.end());
        return entries_.back();
    }
    return nullptr;
}
void PreparedCache::add(Found entry) {
    constexpr size_t kept = 8;
    std::lock_guard lock(mutex_);
    if (entries_.size() == kept) entries_.erase(entries_.begin());
    entries_.push_back(std::move(entry));
}

Program::Program(std::vector<ValueInfo> values, Block main, int threads, bool trusting)
    : values_(std::move(values)), main_(std::move(main)), threads_(threads), trusting_(trusting) {
    for (ValueInfo& value : values_)
        if (value.constant && value.initial.is_tensor()) {
            value.desc = value.initial.tensor.desc;
            value.ranked = value.known = true;
        }
    for (int slot : main_.inputs) {
        ValueInfo& value = values_[static_cast<size_t>(slot)];
        value.known = complete(value);
    }
    int position = 0;
    build(main_, position);
    std::vector<int> seen = main_.outputs;
    std::sort(seen.begin(), seen.end());
    for (Instruction& instruction : main_.code)  // a value that is one output exactly is written where the caller wants it
        for (int slot : instruction.out) {
            if (slot < 0 || !instruction.prepared || instruction.kernel->alias() >= 0) continue;
            auto [from, to] = std::equal_range(seen.begin(), seen.end(), slot);
            values_[static_cast<size_t>(slot)].direct = to - from == 1;
        }
    plan_values(main_);
    find_releases(main_, true);
}

void Program::build(Block& block, int& position) {
    for (int slot : block.outputs) values_[static_cast<size_t>(slot)].output = true;
    for (Instruction& instruction : block.code) {
        instruction.first = position++;
        most_operands_ = std::max(most_operands_, instruction.in.size() + instruction.out.size());
        if (instruction.kind == Kind::Native) build_native(instruction);
        else if (!instruction.blocks.empty()) build_control(instruction, position);
        if (instruction.kind == Kind::Call && trusting_) trust(instruction);
        instruction.last = position++;
    }
}

void Program::build_native(Instruction& instruction) {
    try {
        if (!typed(instruction)) throw Unsupported("an element type is not known, or is no number");
        instruction.kernel = registry().make(spec_of(instruction));
    } catch (const Unsupported&) {
        if (!instruction.callable) throw;
        instruction.kind = Kind::Call;
        return;
    } catch (const std::exception& e) {
        throw NodeFailure(instruction.name, instruction.operator_name(), "", e.what());
    }
    instruction.attrs = Attrs();
    prepare_static(instruction);
    if (!instruction.prepared) instruction.cache = std::make_shared<PreparedCache>();
}

void Program::trust(const Instruction& instruction) {
    for (int slot : instruction.out)
        if (slot >= 0) values_[static_cast<size_t>(slot)].known = complete(values_[static_cast<size_t>(slot)]);
}

// Whether every operand is a tensor of numbers of known element type.
bool Program::typed(const Instruction& instruction) const {
    auto numeric = [&](int slot) {
        DType dtype = slot < 0 ? DType::F32 : values_[static_cast<size_t>(slot)].desc.dtype;
        return dtype != DType::Undefined && dtype != DType::Str;
    };
    return std::all_of(instruction.in.begin(), instruction.in.end(), numeric) &&
           std::all_of(instruction.out.begin(), instruction.out.end(), numeric);
}

NodeSpec Program::spec_of(const Instruction& instruction) const {
    NodeSpec spec{instruction.op, instruction.domain, instruction.attrs, {}, {}};
    for (int slot : instruction.in) {
        if (slot < 0) {
            spec.inputs.push_back({});
            continue;
        }
        const ValueInfo& value = values_[static_cast<size_t>(slot)];
        const Tensor* data = value.constant && value.initial.is_tensor() ? &value.initial.tensor : nullptr;
        spec.inputs.push_back({value.desc.dtype, value.ranked ? value.desc.shape.rank : -1, value.desc.shape, data, value.key});
    }
    for (int slot : instruction.out)
        spec.outputs.push_back(slot < 0 ? DType::Undefined : values_[static_cast<size_t>(slot)].desc.dtype);
    return spec;
}

// What is wrong with the operands is not said here: the instruction may never run (a branch not taken).
void Program::prepare_static(Instruction& instruction) {
    std::vector<Tensor> in;
    for (size_t i = 0; i < instruction.in.size(); ++i) {
        int slot = instruction.in[i];
        if (slot < 0) {
            in.push_back({});
            continue;
        }
        const ValueInfo& value = values_[static_cast<size_t>(slot)];
        bool wanted = i < 32 && (instruction.kernel->value_inputs() >> i & 1);
        if (!value.known || (wanted && !value.constant)) return;
        in.push_back({value.desc, value.constant ? value.initial.tensor.data : nullptr});
    }
    std::vector<TensorDesc> out(instruction.out.size());
    try {
        instruction.prepared = instruction.kernel->prepare(in.data(), out.data());
        for (const TensorDesc& desc : out)
            if (desc.nbytes() > memory_limit()) instruction.prepared = nullptr;
    } catch (const std::exception&) {
        instruction.prepared = nullptr;
    }
    if (!instruction.prepared) return;
    workspace_nbytes_ = std::max(workspace_nbytes_, instruction.prepared->workspace);
    for (size_t i = 0; i < out.size(); ++i) {
        if (instruction.out[i] < 0) continue;
        ValueInfo& value = values_[static_cast<size_t>(instruction.out[i])];
        value.desc = out[i];
        value.ranked = value.known = out[i].dtype != DType::Undefined;
    }
}

void Program::build_control(Instruction& instruction, int& position) {
    for (Block& block : instruction.blocks) build(block, position);
    if (instruction.kind != Kind::If) return;
    for (size_t i = 0; i < instruction.out.size(); ++i) {  // known where both branches agree
        if (instruction.out[i] < 0) continue;
        const ValueInfo& a = values_[static_cast<size_t>(instruction.blocks[0].outputs[i])];
        const ValueInfo& b = values_[static_cast<size_t>(instruction.blocks[1].outputs[i])];
        if (!a.known || !b.known || a.desc.dtype != b.desc.dtype || a.desc.shape != b.desc.shape) continue;
        ValueInfo& value = values_[static_cast<size_t>(instruction.out[i])];
        value.desc = a.desc;
        value.ranked = value.known = true;
    }
}

// Results of known shape live in the arena, but those that leave their block: a branch's result outlives the branch.
void Program::plan_values(Block& block) {
    for (Instruction& instruction : block.code) {
        for (Block& inner : instruction.blocks) plan_values(inner);
        int alias = instruction.kernel ? instruction.kernel->alias() : -1;
        if (!instruction.prepared && alias < 0) continue;
        for (size_t i = 0; i < instruction.out.size(); ++i) {
            if (instruction.out[i] < 0) continue;
            ValueInfo& value = values_[static_cast<size_t>(instruction.out[i])];
            if (value.output && alias < 0) continue;
            value.planned = true;
            value.first = instruction.first;
            value.last = instruction.last;
            if (alias >= 0 && i == 0) value.alias = instruction.in[static_cast<size_t>(alias)];
            if (i == 0 && alias < 0)
                for (size_t k = 0; k < instruction.in.size() && k < 32; ++k)
                    if (instruction.kernel->inplace() >> k & 1 && instruction.in[k] >= 0) value.inplace.push_back(instruction.in[k]);
        }
    }
}

// The last reader of each value in the block that makes it; a body's reads count for the instruction that holds it.
// The inputs of the whole program are kept to its end: dropping the caller's arrays needs the host's lock.
void Program::find_releases(Block& block, bool main) {
    std::vector<int> reader(values_.size(), -1);
    std::vector<int> own;
    (main ? block.leftover : own) = block.inputs;
    for (size_t i = 0; i < block.code.size(); ++i) {
        std::vector<int> reads;
        collect_reads(block.code[i], reads);
        for (int slot : reads) reader[static_cast<size_t>(slot)] = static_cast<int>(i);
        for (int slot : block.code[i].out)
            if (slot >= 0) {
                own.push_back(slot);
                reader[static_cast<size_t>(slot)] = static_cast<int>(i);
            }
        for (Block& inner : block.code[i].blocks) find_releases(inner, false);
    }
    for (int slot : own) {
        ValueInfo& value = values_[static_cast<size_t>(slot)];
        bool leaves = std::find(block.outputs.begin(), block.outputs.end(), slot) != block.outputs.end();
        int at = reader[static_cast<size_t>(slot)];
        if (value.planned) value.last = leaves ? INT32_MAX : block.code[static_cast<size_t>(at)].last;
        bool resident = value.planned && value.alias < 0;
        if (resident) continue;
        if (leaves || at < 0) block.leftover.push_back(slot);
        else block.code[static_cast<size_t>(at)].release.push_back(slot);
    }
}

void Program::lay_out(const std::vector<int64_t>& offsets, size_t arena_nbytes) {
    if (offsets.size() != values_.size()) throw std::invalid_argument("one offset per value is needed");
    for (size_t i = 0; i < offsets.size(); ++i) {
        ValueInfo& value = values_[i];
        bool wanted = value.planned && value.alias < 0;
        if (wanted && (offsets[i] < 0 || static_cast<size_t>(offsets[i]) + value.desc.nbytes() > arena_nbytes))
            throw std::invalid_argument("a value does not fit in the arena");
        value.offset = wanted ? offsets[i] : -1;
    }
    arena_nbytes_ = arena_nbytes;
}

std::unique_ptr<Run> Program::acquire() {
    {
        std::lock_guard lock(mutex_);
        if (!idle_.empty()) {
            auto run = std::move(idle_.back());
            idle_.pop_back();
            return run;
        }
    }
    auto run = std::make_unique<Run>();
    run->slots.resize(values_.size());
    run->operands.resize(most_operands_);
    run->threads = threads_;
    run->arena = cached_buffer(arena_nbytes_);
    run->workspace = cached_buffer(workspace_nbytes_);
    for (size_t i = 0; i < values_.size(); ++i) {
        const ValueInfo& value = values_[i];
        if (value.constant) run->slots[i] = value.initial;
        if (value.offset < 0) continue;
        run->slots[i].tensor = {value.desc, static_cast<char*>(run->arena.get()) + value.offset};
        run->slots[i].place = Place::Arena;
        run->slots[i].set = true;
    }
    return run;
}

void Program::clear(const Block& block, Run& run) const {
    for (int slot : block.leftover) run.slots[static_cast<size_t>(slot)] = Slot();
}

// A run goes back only when its call succeeded: then every slot that is not resident has been released.
void Program::release(std::unique_ptr<Run> run) {
    constexpr size_t kept = 4;
    run->profile = nullptr;
    clear(main_, *run);
    std::lock_guard lock(mutex_);
    if (idle_.size() < kept) idle_.push_back(std::move(run));
}

}  // namespace opweave
