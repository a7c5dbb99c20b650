// A compiled stage: a flat list of instructions over numbered value slots. Bodies of control flow are blocks of
// instructions over the same slots, so an outer value that a body captures is simply a slot. Immutable once it is laid
// out; every call in flight has a Run of its own.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/kernel.h"
#include "core/memory.h"

namespace opweave {

// Who keeps a slot's bytes alive: nobody needs to (inputs and constants, which outlast the call), the call's arena, the
// caller's output array, or the slot's owner.
enum class Place : uint8_t { Borrowed, Arena, Output, Owned };

// A value in a call: a tensor, or an object of the host language (strings, sequences, optionals, maps).
struct Slot {
    Tensor tensor;
    std::shared_ptr<const void> owner;
    std::shared_ptr<void> object;
    Place place = Place::Borrowed;
    bool set = false;

    bool is_tensor() const { return set && !object; }
};

Slot owned_slot(const TensorDesc& desc);  // newly allocated, contents undefined
Slot persistent(const Slot& slot);        // the same value, safe to keep past the arena's and the output's lives

// A call of the host gave another type or shape than was inferred when the program was built.
struct ShapeSurprise : std::runtime_error { using std::runtime_error::runtime_error; };

// What the core cannot compute itself: called with the operands of one instruction.
class Callable {
  public:
    virtual ~Callable() = default;
    virtual void run(const std::vector<const Slot*>& in, const std::vector<Slot*>& out) const = 0;
    virtual bool native() const { return false; }  // it is no function of Python's
};

struct NodeFailure : std::runtime_error {
    NodeFailure(std::string node_, std::string op_, std::string operands_, const std::string& what)
        : std::runtime_error(what), node(std::move(node_)), op(std::move(op_)), operands(std::move(operands_)) {}
    std::string node, op, operands;
};

// Preparations of one instruction by input shapes (and the data of shape operands), for shapes known only when it runs.
class PreparedCache {
  public:
    struct Entry {
        std::vector<int64_t> key;
        std::shared_ptr<const Prepared> prepared;
        std::vector<TensorDesc> outputs;
    };
    using Found = std::shared_ptr<const Entry>;
    Found find(const std::vector<int64_t>& key);
    void add(Found entry);

  private:
    std::mutex mutex_;
    std::vector<Found> entries_;  // the last used one last
};

struct Instruction;
struct Block {
    std::vector<int> inputs, outputs;
    std::vector<int> leftover;  // slots of its own that still hold a value when it ends
    std::vector<Instruction> code;
};

struct ScanForm {
    int scanned = 0;  // number of scan inputs
    std::vector<int64_t> in_axes, out_axes, in_reverse, out_reverse;
};

enum class Kind : uint8_t { Native, Call, If, Loop, Scan };

struct Instruction {
    Kind kind = Kind::Native;
    std::string name, op, domain;
    std::vector<int> in, out;   // slots, -1 where omitted
    std::vector<int> release;   // slots that nothing reads afterwards
    int first = 0, last = 0;    // position in the order of execution, bodies included

    Attrs attrs;                              // until the kernel is made
    std::shared_ptr<Kernel> kernel;           // Native
    std::shared_ptr<const Prepared> prepared; // Native, when all shapes are known: the outputs' are in the value table
    std::shared_ptr<PreparedCache> cache;     // Native otherwise
    std::shared_ptr<Callable> callable;       // Call; what a Native one becomes where there is no kernel
    std::vector<Block> blocks;                // then and else, or the body
    ScanForm scan;

    bool leaves_core() const { return kind == Kind::Call && !callable->native(); }
    std::string operator_name() const { return domain.empty() ? op : domain + "." + op; }
};

struct ValueInfo {
    TensorDesc desc;             // dtype Undefined: an object, or not known; a dimension is -1 where unknown
    bool ranked = false;
    bool known = false;          // desc is certain and complete
    bool constant = false;
    bool output = false;         // of a block
    bool direct = false;         // an output that its instruction writes into the caller's array
    std::string key;
    Slot initial;                // a constant's value
    // Memory, where the shape is known and an instruction makes the value:
    bool planned = false;
    int first = 0, last = 0, alias = -1;
    std::vector<int> inplace;
    int64_t offset = -1;         // in the arena
};

struct ProfileRow {
    const Instruction* instruction;
    double seconds;
    double flops;
    size_t nbytes;
    const char* algorithm;
};

// The state of one call.
struct Run {
    std::vector<Slot> slots;
    std::shared_ptr<void> arena, workspace;
    std::vector<Tensor> operands;
    std::vector<int64_t> key;
    std::vector<ProfileRow>* profile = nullptr;
    double flops = 0;             // of the instruction that runs, for the profile
    const char* algorithm = "";
    int threads = 1;
};

class Program {
  public:
    // `trusting`: what calls of the host return has the inferred shapes; where it has not, execute() throws ShapeSurprise.
    Program(std::vector<ValueInfo> values, Block main, int threads, bool trusting);

    // Fixes the arena: offset per slot (-1: none).
    void lay_out(const std::vector<int64_t>& offsets, size_t arena_nbytes);

    std::unique_ptr<Run> acquire();
    void release(std::unique_ptr<Run> run);
    void execute(Run& run) const { execute(main_, run); }

    const std::vector<ValueInfo>& values() const { return values_; }
    const Block& main() const { return main_; }
    size_t arena_nbytes() const { return arena_nbytes_; }
    size_t workspace_nbytes() const { return workspace_nbytes_; }
    int threads() const { return threads_; }

  private:
    // building
    void build(Block& block, int& position);
    void build_native(Instruction& instruction);
    void build_control(Instruction& instruction, int& position);
    void trust(const Instruction& instruction);
    bool typed(const Instruction& instruction) const;
    NodeSpec spec_of(const Instruction& instruction) const;
    void prepare_static(Instruction& instruction);
    void find_releases(Block& block, bool main);
    void plan_values(Block& block);
    // running
    void execute(const Block& block, Run& run) const;
    void clear(const Block& block, Run& run) const;
    void step(const Instruction& instruction, Run& run) const;
    void run_native(const Instruction& instruction, Run& run) const;
    void run_dynamic(const Instruction& instruction, Run& run) const;
    void run_alias(const Instruction& instruction, const TensorDesc& desc, Run& run) const;
    void run_call(const Instruction& instruction, Run& run) const;
    void run_if(const Instruction& instruction, Run& run) const;
    void run_loop(const Instruction& instruction, Run& run) const;
    void run_scan(const Instruction& instruction, Run& run) const;
    Slot stack(const std::vector<Slot>& items, int value, int64_t axis, bool reverse) const;
    void gather_inputs(const Instruction& instruction, Run& run) const;

    std::vector<ValueInfo> values_;
    Block main_;
    int threads_;
    bool trusting_;
    size_t arena_nbytes_ = 0, workspace_nbytes_ = 0, most_operands_ = 0;
    std::mutex mutex_;
    std::vector<std::unique_ptr<Run>> idle_;
};

// Every slot that the block and its bodies read from outside themselves or made.
void collect_reads(const Instruction& instruction, std::vector<int>& slots);

}  // namespace opweave
