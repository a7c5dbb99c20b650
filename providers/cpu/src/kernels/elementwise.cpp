// The engine behind elementwise.h, and the operators of odd arity: Where, Clip, Dropout.
#include "kernels/elementwise.h"

namespace opweave {
namespace OPWEAVE_ISA {

namespace {

constexpr int64_t kMostPeriod = 4096;  // longer repeated rows are read where they lie

size_t align(size_t n) { return (n + 63) / 64 * 64; }

}  // namespace

BlockSource::BlockSource(const TensorDesc& operand, const Shape& out, DType computed)
    : layout_(operand.shape, out), convert_(operand.dtype, computed), stored_(size_of(operand.dtype)), size_(size_of(computed)) {
    if (layout_.kind == Broadcast::Kind::Single) workspace_ = align(static_cast<size_t>(std::min(kBlock, out.count())) * size_);
    else if (layout_.kind == Broadcast::Kind::Periodic && layout_.run() <= kMostPeriod) workspace_ = align(static_cast<size_t>(layout_.run() + kBlock) * size_);
}

void BlockSource::open(const void* data, char* workspace) const {
    if (workspace_ == 0) return;
    const int64_t n = static_cast<int64_t>(workspace_ / size_);
    char buffer[kBlock * 8];
    for (int64_t at = 0; at < n; at += kBlock) {
        const int64_t part = std::min(kBlock, n - at);
        char* to = workspace + at * static_cast<int64_t>(size_);
        layout_.read(data, at, part, convert_ ? buffer : to, stored_);
        if (convert_) convert_(buffer, to, part);
    }
}

const void* BlockSource::block(const void* data, const char* workspace, int64_t start, int64_t n, char* buffer) const {
    if (workspace_ > 0) return layout_.kind == Broadcast::Kind::Single ? workspace : workspace + start % layout_.run() * static_cast<int64_t>(size_);
    const char* from = static_cast<const char*>(data);
    const int64_t at = layout_.contiguous(start, n);
    if (at >= 0) {
        from += at * static_cast<int64_t>(stored_);
        if (!convert_) return from;
        convert_(from, buffer, n);
        return buffer;
    }
    if (!convert_) {
        layout_.read(data, start, n, buffer, stored_);
        return buffer;
    }
    alignas(64) char raw[kBlock * 8];
    layout_.read(data, start, n, raw, stored_);
    convert_(raw, buffer, n);
    return buffer;
}

DType compute_type(DType stored) {
    switch (stored) {
        case DType::F16: case DType::BF16: case DType::F8E4M3FN: case DType::F8E4M3FNUZ: case DType::F8E5M2: case DType::F8E5M2FNUZ:
            return DType::F32;
        default: return stored;
    }
}
Operation plain_operation(DType stored, BlockFn fn, Params params) {
    DType t = compute_type(stored);
    return {fn, {t, t, t}, t, stored, params};
}
Operation test_operation(DType stored, BlockFn fn, Params params) {
    DType t = compute_type(stored);
    return {fn, {t, t, t}, DType::Bool, DType::Bool, params};
}
DType dtype_of_input(const NodeSpec& spec, size_t i) {
    if (!spec.has_input(i)) throw Unsupported("input " + std::to_string(i) + " is missing");
    return spec.inputs[i].dtype;
}
DType common_type(const NodeSpec& s) {
    DType t = dtype_of_input(s, 0);
    if (dtype_of_input(s, 1) != t) throw BadOperand(std::string("operands are ") + name_of(t) + " and " + name_of(s.inputs[1].dtype));
    return t;
}

namespace {

void check_types(const std::vector<DType>& types, const Tensor* in) {
    for (size_t k = 0; k < types.size(); ++k)
        if (in[k].dtype() != types[k])
            throw BadOperand("operand " + std::to_string(k) + " is " + name_of(in[k].dtype()) + ", expected " + name_of(types[k]));
}

// The sources of some operands, with their share of the workspace.
struct Sources {
    std::vector<BlockSource> source;
    std::vector<size_t> offset;
    size_t workspace = 0;

    void add(const Tensor& operand, const Shape& out, DType computed) {
        source.push_back(operand.present() ? BlockSource(operand.desc, out, computed) : BlockSource());
        offset.push_back(workspace);
        workspace += source.back().workspace();
    }
    void open(const Tensor* in, void* space) const {
        for (size_t k = 0; k < source.size(); ++k)
            if (in[k].present()) source[k].open(in[k].data, static_cast<char*>(space) + offset[k]);
    }
    const void* block(const Tensor* in, const void* space, size_t k, int64_t start, int64_t n, char* buffer) const {
        if (!in[k].present()) return nullptr;
        return source[k].block(in[k].data, static_cast<const char*>(space) + offset[k], start, n, buffer);
    }
};

class RunBlocks final : public Prepared {
  public:
    RunBlocks(const Operation& op, Sources sources, const Shape& out)
        : op_(op), sources_(std::move(sources)), count_(out.count()), convert_(op.computed, op.result) {
        workspace = sources_.workspace;
        flops = static_cast<double>(count_);
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        if (count_ == 0) return;
        sources_.open(in, context.workspace);
        parallel_ranges(context.threads, count_, kBlockGrain, [&](int64_t begin, int64_t end) {
            for (int64_t at = begin; at < end; at += kBlock) block(context.workspace, in, out, at, std::min(kBlock, end - at));
        });
    }

  private:
    void block(const void* space, const Tensor* in, const Tensor* out, int64_t at, int64_t n) const {
        alignas(64) char buffer[kMostOperands + 1][kBlock * 8];
        const void* operand[kMostOperands] = {};
        for (size_t k = 0; k < sources_.source.size(); ++k) operand[k] = sources_.block(in, space, k, at, n, buffer[k]);
        char* to = out[0].as<char>() + at * static_cast<int64_t>(size_of(op_.result));
        char* result = convert_ ? buffer[kMostOperands] : to;
        op_.fn(operand, result, n, op_.params);
        if (convert_) convert_(result, to, n);
    }
    Operation op_;
    Sources sources_;
    int64_t count_;
    Converter convert_;
};

class Elementwise final : public Kernel {
  public:
    Elementwise(const NodeSpec& spec, const Operation& op, int operands) : op_(op) {
        for (int k = 0; k < operands && k < static_cast<int>(spec.inputs.size()); ++k) {
            auto i = static_cast<size_t>(k);
            types_.push_back(spec.has_input(i) ? spec.inputs[i].dtype : DType::Undefined);
            if (op_.in[k] == DType::Undefined) op_.in[k] = types_[i];
        }
    }
    uint32_t inplace() const override {
        uint32_t bits = 0;
        for (size_t k = 0; k < types_.size(); ++k)
            if (size_of(types_[k]) == size_of(op_.result)) bits |= 1u << k;
        return bits;
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        check_types(types_, in);
        out[0] = {op_.result, broadcast_shape(in, types_.size())};
        out[0].count();
        Sources sources;
        for (size_t k = 0; k < types_.size(); ++k) sources.add(in[k], out[0].shape, op_.in[k]);
        return std::make_unique<RunBlocks>(op_, std::move(sources), out[0].shape);
    }

  private:
    Operation op_;
    std::vector<DType> types_;
};

class RunFold final : public Prepared {
  public:
    RunFold(BlockFn fold, BlockFn finish, DType stored, Sources sources, const Shape& out)
        : fold_(fold), finish_(finish), sources_(std::move(sources)), count_(out.count()), size_(size_of(stored)), narrow_(compute_type(stored), stored) {
        workspace = sources_.workspace;
        flops = static_cast<double>(count_) * static_cast<double>(sources_.source.size());
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        if (count_ == 0) return;
        sources_.open(in, context.workspace);
        parallel_ranges(context.threads, count_, kBlockGrain, [&](int64_t begin, int64_t end) {
            for (int64_t at = begin; at < end; at += kBlock) block(context.workspace, in, out, at, std::min(kBlock, end - at));
        });
    }

  private:
    void block(const void* space, const Tensor* in, const Tensor* out, int64_t at, int64_t n) const {
        alignas(64) char sum[kBlock * 8], buffer[kBlock * 8];
        const void* pair[2] = {sources_.block(in, space, 0, at, n, sum), nullptr};
        const size_t operands = sources_.source.size();
        for (size_t k = 1; k < operands; ++k) {
            pair[1] = sources_.block(in, space, k, at, n, buffer);
            fold_(pair, sum, n, {});
            pair[0] = sum;
        }
        if (finish_) finish_(pair, sum, n, {static_cast<double>(operands), 0});
        const void* total = finish_ ? sum : pair[0];
        char* to = out[0].as<char>() + at * static_cast<int64_t>(size_);
        if (narrow_) narrow_(total, to, n);
        else if (to != total) std::memcpy(to, total, static_cast<size_t>(n) * size_);
    }
    BlockFn fold_, finish_;
    Sources sources_;
    int64_t count_;
    size_t size_;
    Converter narrow_;
};

class Variadic final : public Kernel {
  public:
    Variadic(const NodeSpec& spec, BlockFn fold, BlockFn finish)
        : types_(spec.inputs.size(), dtype_of_input(spec, 0)), fold_(fold), finish_(finish) {}
    uint32_t inplace() const override { return 1; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        check_types(types_, in);
        out[0] = {types_[0], broadcast_shape(in, types_.size())};
        out[0].count();
        Sources sources;
        for (size_t k = 0; k < types_.size(); ++k) sources.add(in[k], out[0].shape, compute_type(types_[0]));
        return std::make_unique<RunFold>(fold_, finish_, types_[0], std::move(sources), out[0].shape);
    }

  private:
    std::vector<DType> types_;
    BlockFn fold_, finish_;
};

template <class T> void where_block(const void* const* in, void* out, int64_t n, const Params&) {
    const uint8_t* condition = static_cast<const uint8_t*>(in[0]);
    const T *x = static_cast<const T*>(in[1]), *y = static_cast<const T*>(in[2]);
    T* z = static_cast<T*>(out);
    for (int64_t i = 0; i < n; ++i) z[i] = condition[i] ? x[i] : y[i];
}
Operation where(const NodeSpec& s) {
    DType t = dtype_of_input(s, 1);
    if (dtype_of_input(s, 0) != DType::Bool || dtype_of_input(s, 2) != t) throw Unsupported("operands of other types");
    Operation op;
    op.computed = op.result = t;
    switch (size_of(t)) {
        case 1: op.fn = where_block<uint8_t>; break;
        case 2: op.fn = where_block<uint16_t>; break;
        case 4: op.fn = where_block<uint32_t>; break;
        case 8: op.fn = where_block<uint64_t>; break;
        default: throw Unsupported(std::string("no native kernel for ") + name_of(t));
    }
    return op;
}

// The bounds are scalars; without one there is none on that side. NaN passes.
template <class T> void clip_block(const void* const* in, void* out, int64_t n, const Params&) {
    using Limit = std::numeric_limits<T>;
    const T low = in[1] ? *static_cast<const T*>(in[1]) : Limit::has_infinity ? -Limit::infinity() : Limit::lowest();
    const T high = in[2] ? *static_cast<const T*>(in[2]) : Limit::has_infinity ? Limit::infinity() : Limit::max();
    const T* x = static_cast<const T*>(in[0]);
    T* y = static_cast<T*>(out);
    for (int64_t i = 0; i < n; ++i) {
        T v = x[i] < low ? low : x[i];
        y[i] = v > high ? high : v;
    }
}
class Clip final : public Kernel {
  public:
    explicit Clip(const NodeSpec& s) : stored_(dtype_of_input(s, 0)), op_(choose(s)) {
        for (size_t k = 0; k < std::min<size_t>(3, s.inputs.size()); ++k) types_.push_back(s.has_input(k) ? stored_ : DType::Undefined);
    }
    static Operation choose(const NodeSpec& s) {
        DType t = dtype_of_input(s, 0);
        return plain_operation(t, visit<NumberTypes>(t, [](auto x) -> BlockFn { return clip_block<wide_t<decltype(x)>>; }));
    }
    uint32_t inplace() const override { return 1; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        check_types(types_, in);
        for (size_t k = 1; k < types_.size(); ++k)
            if (in[k].present() && in[k].count() != 1) throw BadOperand("a bound must be a scalar, its shape is " + in[k].shape().str());
        out[0] = in[0].desc;
        Sources sources;
        sources.add(in[0], out[0].shape, op_.in[0]);
        for (size_t k = 1; k < types_.size(); ++k) sources.add(scalar(in[k]), out[0].shape, op_.in[k]);
        return std::make_unique<RunBlocks>(op_, std::move(sources), out[0].shape);
    }

  private:
    static Tensor scalar(Tensor t) {
        t.desc.shape = Shape{};
        return t;
    }
    DType stored_;
    Operation op_;
    std::vector<DType> types_;
};

// Inference only: the reference implementation draws the random mask of training.
class Dropout final : public Kernel {
  public:
    explicit Dropout(const NodeSpec& s) : with_mask_(s.has_output(1)) {
        if (size_of(dtype_of_input(s, 0)) == 0) throw Unsupported("no native kernel for strings");
        if (!s.has_input(2)) return;
        const Tensor* training = s.inputs[2].constant;
        if (!training || training->count() != 1 || *training->as<uint8_t>()) throw Unsupported("dropout in training");
    }
    int alias() const override { return with_mask_ ? -1 : 0; }
    uint32_t inplace() const override { return 1; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        out[0] = in[0].desc;
        if (with_mask_) out[1] = {DType::Bool, in[0].shape()};
        return std::make_unique<Run>(with_mask_);
    }

  private:
    struct Run final : Prepared {
        bool with_mask;
        explicit Run(bool mask) : with_mask(mask) {}
        void run(const Context&, const Tensor* in, const Tensor* out) const override {
            if (in[0].data != out[0].data) std::memcpy(out[0].data, in[0].data, out[0].desc.nbytes());
            if (with_mask) std::memset(out[1].data, 1, out[1].desc.nbytes());
        }
    };
    bool with_mask_;
};

}  // namespace

namespace {
std::map<std::string, Chooser>& choosers() {  // filled while the operators register
    static std::map<std::string, Chooser> table;
    return table;
}
}  // namespace

Operation operation_of(const NodeSpec& spec) {
    auto found = choosers().find(spec.op);
    if (found == choosers().end()) throw Unsupported("'" + spec.op + "' is not elementwise");
    return found->second(spec);
}
std::unique_ptr<Kernel> make_elementwise(const NodeSpec& spec, const Operation& op, int operands) {
    return std::make_unique<Elementwise>(spec, op, operands);
}
void add_elementwise(Registry& r, const char* op, int required, int operands, Chooser choose) {
    choosers()[op] = choose;
    r.add(op, [=](const NodeSpec& s) {
        for (int k = 0; k < required; ++k) dtype_of_input(s, static_cast<size_t>(k));
        return make_elementwise(s, choose(s), operands);
    });
}
void add_variadic(Registry& r, const char* op, std::function<BlockFn(DType)> fold, std::function<BlockFn(DType)> finish) {
    if (!finish) choosers()[op] = [=](const NodeSpec& s) {
        if (s.inputs.size() != 2) throw Unsupported("not two inputs");
        DType t = common_type(s);
        return plain_operation(t, fold(compute_type(t)));
    };
    r.add(op, [=](const NodeSpec& s) {
        DType t = compute_type(dtype_of_input(s, 0));
        return std::make_unique<Variadic>(s, fold(t), finish ? finish(t) : nullptr);
    });
}

void register_elementwise(Registry& r) {
    add_elementwise(r, "Where", 3, 3, where);
    choosers()["Clip"] = Clip::choose;
    r.add("Clip", [](const NodeSpec& s) { return std::make_unique<Clip>(s); });
    r.add("Dropout", [](const NodeSpec& s) { return std::make_unique<Dropout>(s); });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
