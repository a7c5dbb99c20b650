// What an operator's implementation is made of: a Kernel (attributes and packed weights, made once when a program is
// built), and a Prepared (one set of input shapes). Both are immutable once made, so many requests may run them at once.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "core/parallel.h"
#include "core/tensor.h"

namespace opweave {

// Thrown by a factory for what it does not implement; the node then runs through the reference implementation.
struct Unsupported : std::runtime_error { using std::runtime_error::runtime_error; };
// Thrown by prepare() and run() for operands that break the operator's contract; reported to the user with the node.
struct BadOperand : std::runtime_error { using std::runtime_error::runtime_error; };

struct OwnedTensor {
    Tensor tensor;
    std::shared_ptr<const void> owner;
};

class Attrs {
  public:
    using Value = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                               std::vector<std::string>, OwnedTensor>;
    std::map<std::string, Value> values;

    bool has(const std::string& name) const { return values.count(name) != 0; }
    int64_t integer(const std::string& name, int64_t otherwise) const;
    double real(const std::string& name, double otherwise) const;
    std::string text(const std::string& name, const std::string& otherwise) const;
    std::vector<int64_t> integers(const std::string& name, std::vector<int64_t> otherwise = {}) const;
    std::vector<double> reals(const std::string& name, std::vector<double> otherwise = {}) const;
    std::vector<std::string> texts(const std::string& name) const;
    const Tensor* tensor(const std::string& name) const;  // null when absent
};

// What is known of an operand when a kernel is made.
struct Operand {
    DType dtype = DType::Undefined;   // Undefined: omitted
    int rank = -1;                    // -1: unknown
    Shape shape;                      // a dimension is -1 where unknown; meaningful when rank >= 0
    const Tensor* constant = nullptr; // its data, when it is a constant of the model
    std::string key;                  // identifies a constant's content; packed forms are shared by it
    bool present() const { return dtype != DType::Undefined; }
};

struct NodeSpec {
    std::string op, domain;           // newest form of the ONNX operator, or an internal one in domain "opweave"
    Attrs attrs;
    std::vector<Operand> inputs;      // trailing omitted operands included
    std::vector<DType> outputs;       // Undefined: omitted, or not known
    bool has_input(size_t i) const { return i < inputs.size() && inputs[i].present(); }
    bool has_output(size_t i) const { return i < outputs.size() && outputs[i] != DType::Undefined; }
};

// What a running instruction may use.
struct Context {
    int threads = 1;                  // how many may work on this call, the caller included
    void* workspace = nullptr;        // Prepared::workspace bytes, 64-byte aligned; contents undefined
};

class Prepared {
  public:
    virtual ~Prepared() = default;
    // `in` and `out` have as many entries as the node; omitted ones are not present(). Outputs are allocated, not zeroed.
    virtual void run(const Context& context, const Tensor* in, const Tensor* out) const = 0;
    size_t workspace = 0;
    double flops = 0;                 // floating-point (or integer) operations, for the profile; 0 where it is only bytes
    const char* algorithm = "";       // what was chosen, for the profile: "gemm 14x2", "direct", ...
};

class Kernel {
  public:
    virtual ~Kernel() = default;
    // Bit i set: prepare() reads the data of input i (a shape operand, or one that the output's shape depends on).
    virtual uint32_t value_inputs() const { return 0; }
    // The output is the input's bytes under another shape (Reshape, Squeeze, Identity): input index, or -1.
    virtual int alias() const { return -1; }
    // Bit i set: output 0 may be written over input i when their byte sizes are equal.
    virtual uint32_t inplace() const { return 0; }
    // Checks the operands, fills out[k] (dtype and shape of every output), chooses the algorithm.
    virtual std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const = 0;
};

using Factory = std::function<std::unique_ptr<Kernel>(const NodeSpec&)>;

class Registry {
  public:
    void add(const std::string& op, Factory factory, const std::string& domain = "");
    // Throws Unsupported when there is no kernel, or when the factory refuses.
    std::unique_ptr<Kernel> make(const NodeSpec& spec) const;
    std::vector<std::pair<std::string, std::string>> operators() const;  // (domain, op), sorted

  private:
    std::map<std::pair<std::string, std::string>, Factory> factories_;
};

// The registry of the best instruction set this processor has, or of the one named (throws std::invalid_argument).
const Registry& registry();
void select_isa(const std::string& name);
std::string current_isa();
std::vector<std::string> usable_isas();

// Packed weights shared by every program in the process, dropped with their last user. `key` is Operand::key plus
// whatever distinguishes the packing; an empty operand key is never shared.
std::shared_ptr<const void> packed(const std::string& content_key, const std::string& scheme,
                                   const std::function<std::shared_ptr<const void>()>& make);
template <class T>
std::shared_ptr<const T> packed_as(const std::string& content_key, const std::string& scheme,
                                   const std::function<std::shared_ptr<const T>()>& make) {
    return std::static_pointer_cast<const T>(packed(content_key, scheme, make));
}

// 64-byte aligned memory with 64 readable bytes past its end.
std::shared_ptr<void> aligned_buffer(size_t nbytes);

}  // namespace opweave
