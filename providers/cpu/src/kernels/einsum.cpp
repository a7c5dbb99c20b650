// Einsum (https://onnx.ai/onnx/operators/onnx__Einsum.html). Operands are joined from the left, two at a time, each time
// by one batched matrix product: labels of both that are still needed are the batch, labels of both that are not are
// summed over, the rest are rows and columns. An operand whose labels do not lie as a matrix is copied first; that copy
// also takes diagonals (a label twice in a term is one label with both strides) and sums over labels of its own.
#include "kernels/einsum.h"

#include <algorithm>

#include "kernels/dtypes.h"
#include "kernels/product.h"
#include "kernels/reduce.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

// A tensor seen by labels: one stride a label, none of them twice.
struct View {
    int source = -1;      // operand, or -1: at `offset` of the workspace
    int64_t offset = 0;   // elements
    Labels labels;
    std::vector<int64_t> strides;
    int64_t stride(int label) const {
        const auto it = std::find(labels.begin(), labels.end(), label);
        return it == labels.end() ? 0 : strides[static_cast<size_t>(it - labels.begin())];
    }
    bool has(int label) const { return std::find(labels.begin(), labels.end(), label) != labels.end(); }
};

// to[...] = sum of from over the labels that `to` lacks; to is dense in the order of its labels.
struct Gather {
    View from, to;
    Walk over, keep;      // summed labels; kept ones but the last
    int64_t width = 1, step = 1, count = 1;
};
struct Product {
    View a, b, to;        // to: [batch, m, n], dense
    Walk batch_a, batch_b;
    int64_t batch = 1, m = 1, n = 1, k = 1;
    Strides as, bs;
};
struct Step {
    bool product = false;
    Gather gather;
    Product join;
};
struct EinsumPlan {
    std::vector<Step> steps;
    View result;          // dense, in the order of the output
    int64_t elements = 0; // of the workspace
    double flops = 0;
};

class Planner {
  public:
    Planner(const LabelledShapes& shapes, const std::vector<Shape>& operands, bool copied) : shapes_(shapes), copied_(copied) {
        for (size_t i = 0; i < operands.size(); ++i) views_.push_back(view(static_cast<int>(i), shapes.terms[i], operands[i]));
    }
    EinsumPlan plan() {
        View joined = views_[0];
        for (size_t i = 1; i < views_.size(); ++i) joined = join(joined, views_[i], needed_after(i));
        if (joined.source >= 0 || joined.labels != shapes_.output) joined = gather(joined, shapes_.output);
        plan_.result = joined;
        return std::move(plan_);
    }

  private:
    int64_t size(int label) const { return shapes_.sizes[static_cast<size_t>(label)]; }
    int64_t size(const Labels& labels) const {
        Shape s;
        for (int l : labels) s.push_back(size(l));
        return s.count();
    }
    View view(int source, const Labels& term, const Shape& s) const {
        View v;
        v.source = source;
        int64_t stride = 1;
        for (int d = s.rank - 1; d >= 0; --d) {
            const int label = term[static_cast<size_t>(d)];
            const int64_t own = s[d] == 1 && size(label) != 1 ? 0 : stride;
            const auto it = std::find(v.labels.begin(), v.labels.end(), label);
            if (it != v.labels.end()) {
                v.strides[static_cast<size_t>(it - v.labels.begin())] += own;
            } else {
                v.labels.insert(v.labels.begin(), label);
                v.strides.insert(v.strides.begin(), own);
            }
            stride *= s[d];
        }
        return v;
    }
    View dense(const Labels& labels) {
        View v;
        v.labels = labels;
        v.offset = plan_.elements;
        v.strides.resize(labels.size());
        int64_t stride = 1;
        for (size_t i = labels.size(); i-- > 0; stride *= size(labels[i])) v.strides[i] = stride;
        plan_.elements += (size(labels) + 15) / 16 * 16;
        return v;
    }
    Labels needed_after(size_t i) const {
        Labels needed = shapes_.output;
        for (size_t j = i + 1; j < views_.size(); ++j) needed.insert(needed.end(), views_[j].labels.begin(), views_[j].labels.end());
        return needed;
    }
    // Strides of `labels` in a view, for a walk in row-major order.
    Walk walk(const View& v, const Labels& labels) const {
        Walk w;
        for (size_t i = labels.size(); i-- > 0;) w.push_outer(size(labels[i]), v.stride(labels[i]));
        return w;
    }
    View gather(const View& from, const Labels& labels) {
        Step step;
        Gather& g = step.gather;
        g.from = from;
        g.to = dense(labels);
        Labels kept = labels, summed;
        for (int l : from.labels)
            if (std::find(labels.begin(), labels.end(), l) == labels.end()) summed.push_back(l);
        g.over = walk(from, summed);
        g.count = size(labels);
        if (!kept.empty()) {
            g.width = size(kept.back());
            g.step = from.stride(kept.back());
            kept.pop_back();
        }
        g.keep = walk(from, kept);
        plan_.flops += static_cast<double>(g.count) * static_cast<double>(g.over.steps);
        plan_.steps.push_back(step);
        return g.to;
    }
    // The stride of `labels` as one dimension of the view, or -1.
    int64_t collapsed(const View& v, const Labels& labels, int64_t single) const {
        int64_t stride = -1, span = 0;
        for (size_t i = labels.size(); i-- > 0;) {
            if (size(labels[i]) == 1) continue;
            const int64_t own = v.stride(labels[i]);
            if (stride < 0) stride = own;
            else if (own != span) return -1;
            span = own * size(labels[i]);
        }
        return stride < 0 ? single : stride;
    }
    // Whether rows and columns lie as a matrix; if so, fills the strides.
    bool is_matrix(const View& v, const Labels& rows, const Labels& columns, Strides& s) const {
        if (copied_ && v.source >= 0) return false;
        s.column = collapsed(v, columns, 1);
        s.row = collapsed(v, rows, std::max<int64_t>(1, size(columns)));
        return s.row > 0 && s.column > 0 && (s.row == 1 || s.column == 1);
    }
    static Labels concat(const Labels& a, const Labels& b, const Labels& c) {
        Labels all = a;
        all.insert(all.end(), b.begin(), b.end());
        all.insert(all.end(), c.begin(), c.end());
        return all;
    }
    void sort_as_output(Labels& labels) const {
        const auto place = [&](int l) { return std::find(shapes_.output.begin(), shapes_.output.end(), l) - shapes_.output.begin(); };
        std::stable_sort(labels.begin(), labels.end(), [&](int a, int b) { return place(a) < place(b); });
    }
    View join(View a, View b, const Labels& needed) {
        const auto is_needed = [&](int l) { return std::find(needed.begin(), needed.end(), l) != needed.end(); };
        Labels batch, rows, columns, inner;
        for (int l : a.labels) {
            if (b.has(l)) (is_needed(l) ? batch : inner).push_back(l);
            else if (is_needed(l)) rows.push_back(l);
        }
        for (int l : b.labels)
            if (!a.has(l) && is_needed(l)) columns.push_back(l);
        for (Labels* l : {&batch, &rows, &columns}) sort_as_output(*l);
        if (concat(batch, columns, rows) == shapes_.output) {
            std::swap(a, b);
            std::swap(rows, columns);
        }
        return product(a, b, batch, rows, columns, inner);
    }
    View product(View a, View b, const Labels& batch, const Labels& rows, const Labels& columns, const Labels& inner) {
        Step step;
        step.product = true;
        Product& p = step.join;
        const bool own_a = a.labels.size() > batch.size() + rows.size() + inner.size(), own_b = b.labels.size() > batch.size() + columns.size() + inner.size();
        if (own_a || !is_matrix(a, rows, inner, p.as)) a = gather(a, concat(batch, rows, inner));
        if (own_b || !is_matrix(b, inner, columns, p.bs)) b = gather(b, concat(batch, inner, columns));
        is_matrix(a, rows, inner, p.as);
        is_matrix(b, inner, columns, p.bs);
        p.a = a;
        p.b = b;
        p.batch = size(batch);
        p.m = size(rows);
        p.n = size(columns);
        p.k = size(inner);
        p.batch_a = walk(a, batch);
        p.batch_b = walk(b, batch);
        p.to = dense(concat(batch, rows, columns));
        plan_.flops += 2.0 * static_cast<double>(p.batch * p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
        plan_.steps.push_back(step);
        return p.to;
    }
    const LabelledShapes& shapes_;
    bool copied_;  // operands are of another type than the one computed in
    std::vector<View> views_;
    EinsumPlan plan_;
};

// Integers wrap, so signed ones are computed as unsigned.
template <class T> class RunEinsum final : public Prepared {
    using A = wide_t<T>;
    static constexpr int64_t kDirect = 64;  // multiplications for which calling a product costs more than it saves

  public:
    explicit RunEinsum(EinsumPlan plan) : plan_(std::move(plan)) {
        workspace = static_cast<size_t>(plan_.elements) * sizeof(A);
        flops = plan_.flops;
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        A* space = static_cast<A*>(context.workspace);
        A* result = is_narrow<T> ? space + plan_.result.offset : static_cast<A*>(out[0].data);
        for (size_t i = 0; i < plan_.steps.size(); ++i) {
            const Step& step = plan_.steps[i];
            const View& view = step.product ? step.join.to : step.gather.to;
            A* to = i + 1 == plan_.steps.size() ? result : space + view.offset;
            if (step.product) product(step.join, context.threads, in, space, to);
            else if (step.gather.from.source >= 0) gather(step.gather, context.threads, in[step.gather.from.source].as<T>(), to);
            else gather(step.gather, context.threads, static_cast<const A*>(space + step.gather.from.offset), to);
        }
        if constexpr (is_narrow<T>) narrow(result, out[0].as<T>(), out[0].count());
    }

  private:
    template <class S> static void gather(const Gather& g, int threads, const S* from, A* to) {
        const int64_t rows = g.keep.steps;
        parallel_ranges(threads, rows, 1 + (1 << 14) / std::max<int64_t>(1, g.width * g.over.steps), [&](int64_t begin, int64_t end) {
            for (int64_t r = begin; r < end; ++r) {
                const S* x = from + g.keep.offset(r);
                A* y = to + r * g.width;
                for (int64_t c = 0; c < g.width; ++c) y[c] = widen(x[c * g.step]);
                for (int64_t j = 1; j < g.over.steps; ++j) {
                    const S* more = x + g.over.offset(j);
                    for (int64_t c = 0; c < g.width; ++c) y[c] = static_cast<A>(y[c] + widen(more[c * g.step]));
                }
            }
        });
    }
    static const A* base(const View& v, const Tensor* in, const A* space) {
        return v.source >= 0 ? static_cast<const A*>(in[v.source].data) : space + v.offset;
    }
    static void product(const Product& p, int threads, const Tensor* in, const A* space, A* to) {
        const A *a = base(p.a, in, space), *b = base(p.b, in, space);
        const double work = static_cast<double>(p.batch * p.m) * static_cast<double>(p.n * p.k);
        for_each_batch(threads, p.batch, work, [&](int64_t i, int allowed) {
            const A *x = a + p.batch_a.offset(i), *y = b + p.batch_b.offset(i);
            A* z = to + i * p.m * p.n;
            if (p.m * p.n * p.k <= kDirect || std::is_same_v<A, uint16_t>) return direct(p, x, y, z);
            if constexpr (std::is_same_v<A, float>) opweave::OPWEAVE_ISA::product(p.m, p.n, p.k, {x, p.as}, {y, p.bs}, z, p.n, Epilogue{}, allowed);
            else plain_product<A>(p.m, p.n, p.k, x, p.as, y, p.bs, z);
        });
    }
    static void direct(const Product& p, const A* x, const A* y, A* z) {
        using W = std::conditional_t<std::is_same_v<A, uint16_t>, uint32_t, A>;  // their products overflow int
        for (int64_t i = 0; i < p.m; ++i)
            for (int64_t j = 0; j < p.n; ++j) {
                W total{};
                for (int64_t k = 0; k < p.k; ++k)
                    total = static_cast<W>(total + static_cast<W>(x[i * p.as.row + k * p.as.column]) * y[k * p.bs.row + j * p.bs.column]);
                *z++ = static_cast<A>(total);
            }
    }
    EinsumPlan plan_;
};

class RunZeros final : public Prepared {
  public:
    void run(const Context&, const Tensor*, const Tensor* out) const override { std::memset(out[0].data, 0, out[0].desc.nbytes()); }
};

using WrappingTypes = Types<float, double, f16, bf16, uint8_t, uint16_t, uint32_t, uint64_t>;
DType unsigned_of(DType t) {
    switch (t) {
        case DType::I8: return DType::U8;
        case DType::I16: return DType::U16;
        case DType::I32: return DType::U32;
        case DType::I64: return DType::U64;
        case DType::Bool: throw Unsupported("bool");
        default: return t;
    }
}

class Einsum final : public Kernel {
  public:
    explicit Einsum(const NodeSpec& spec) : equation_(parse_equation(spec.attrs.text("equation", ""), spec.inputs.size())) {
        for (size_t i = 0; i < spec.inputs.size(); ++i)
            if (!spec.has_input(i)) throw Unsupported("an input is missing");
        visit<WrappingTypes>(unsigned_of(spec.inputs.at(0).dtype), [](auto) {});
    }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        std::vector<Shape> operands;
        for (size_t i = 0; i < equation_.terms.size(); ++i) {
            expect_dtype(in[i], in[0].dtype(), "an operand");
            operands.push_back(in[i].shape());
        }
        const LabelledShapes shapes = label(equation_, operands);
        Shape result;
        for (int l : shapes.output) result.push_back(shapes.sizes[static_cast<size_t>(l)]);
        out[0] = {in[0].dtype(), result};
        result.count();
        if (std::find(shapes.sizes.begin(), shapes.sizes.end(), 0) != shapes.sizes.end()) return std::make_unique<RunZeros>();
        return visit<WrappingTypes>(unsigned_of(in[0].dtype()), [&](auto t) -> std::unique_ptr<Prepared> {
            using T = decltype(t);
            return std::make_unique<RunEinsum<T>>(Planner(shapes, operands, is_narrow<T>).plan());
        });
    }

  private:
    Equation equation_;
};

}  // namespace

void register_einsum(Registry& r) {
    r.add("Einsum", [](const NodeSpec& s) { return std::make_unique<Einsum>(s); });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
