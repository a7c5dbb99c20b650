// Reductions over any set of axes. The axes collapse to alternating kept and reduced groups; the innermost group decides
// the inner loop: a contiguous run (several vector accumulators) or a block of columns (one accumulator each). Partial
// results are combined pairwise, so float sums lose about log2(n) roundings, not n. Few outputs over many elements are
// split along the reduced axis; the split depends on the shape only, so results do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <limits>

#include "core/kernel.h"
#include "kernels/axes.h"
#include "kernels/narrow.h"
#include "kernels/simd.h"

namespace opweave {
namespace OPWEAVE_ISA {

// A register's worth of any element type.
template <class A> struct Vec {
    typedef A type __attribute__((vector_size(kLanes * 4)));
    static constexpr int lanes = kLanes * 4 / static_cast<int>(sizeof(A));
    static type get(const A* p) {
        type v;
        std::memcpy(&v, p, sizeof v);
        return v;
    }
    static void put(A* p, type v) { std::memcpy(p, &v, sizeof v); }
    static type all(A x) { return x - type{}; }
};

// A mixed-radix counter over groups of dimensions: step j -> element offset.
struct Walk {
    int rank = 0;
    int64_t dims[kMaxRank], strides[kMaxRank], steps = 1;
    void push_outer(int64_t dim, int64_t stride) {  // groups arrive from the innermost outwards
        dims[rank] = dim;
        strides[rank++] = stride;
        steps *= dim;
    }
    int64_t offset(int64_t j) const {
        if (rank == 1) return j * strides[0];
        int64_t at = 0;
        for (int g = 0; g < rank; ++g) {
            at += j % dims[g] * strides[g];
            j /= dims[g];
        }
        return at;
    }
};

struct ReducePlan {
    Walk keep, over;         // without the innermost group
    int64_t width = 1;       // the innermost group when it is kept, else 1
    int64_t run = 1;         // the innermost group when it is reduced, else 1
    int64_t outputs = 1, reduced = 1;
    int64_t tiles = 1, units = 1, pieces = 1;

    ReducePlan(const Shape& s, const AxisSet& axes);
    size_t partials() const { return pieces > 1 ? static_cast<size_t>(pieces * outputs) : 0; }
};

constexpr int64_t kTile = 512;         // columns reduced together
constexpr int64_t kLeaf = 1024;        // elements (of a run) summed before pairwise combination
constexpr int64_t kLeafRows = 32;
constexpr int64_t kSplit = 1 << 15;    // elements worth a thread

inline ReducePlan::ReducePlan(const Shape& s, const AxisSet& axes) {
    bool inner_done = false;
    int64_t stride = 1;
    for (int i = s.rank - 1; i >= 0;) {
        bool cut = axes.has[i];
        int64_t dim = 1;
        for (; i >= 0 && (axes.has[i] == cut || s[i] == 1); --i) dim *= s[i];
        (cut ? reduced : outputs) *= dim;
        if (!inner_done) (cut ? run : width) = dim;
        else if (dim != 1) (cut ? over : keep).push_outer(dim, stride);
        inner_done = inner_done || dim != 1;
        stride *= dim;
    }
    tiles = keep.steps * ((width + kTile - 1) / kTile);
    units = over.steps > 1 ? over.steps : run;
    if (tiles < 8 && reduced * std::min(width, kTile) >= 4 * kSplit)
        pieces = std::min<int64_t>({units, 16, reduced * std::min(width, kTile) / kSplit});
}

// Op supplies: acc_t<T>; identity<A>(); map(x, shift), join(a, b) on vectors and scalars alike; finish<T>(A, n) -> wide_t<T>.
template <class Op, class T> struct Reducer {
    using A = typename Op::template acc_t<T>;
    using V = Vec<A>;

    static A leaf(const A* p, int64_t n, A shift) {
        constexpr int64_t L = V::lanes;
        int64_t i = 0;
        A total = Op::template identity<A>();
        if (n >= L) {
            typename V::type acc[4], s = V::all(shift);
            for (auto& a : acc) a = V::all(total);
            for (; i + 4 * L <= n; i += 4 * L)
                for (int u = 0; u < 4; ++u) acc[u] = Op::join(acc[u], Op::map(V::get(p + i + u * L), s));
            for (; i + L <= n; i += L) acc[0] = Op::join(acc[0], Op::map(V::get(p + i), s));
            auto v = Op::join(Op::join(acc[0], acc[1]), Op::join(acc[2], acc[3]));
            for (int k = 0; k < L; ++k) total = Op::join(total, static_cast<A>(v[k]));
        }
        for (; i < n; ++i) total = Op::join(total, static_cast<A>(Op::map(p[i], shift)));
        return total;
    }
    static A run(const T* p, int64_t n, A shift) {
        if (n > kLeaf) {
            int64_t half = (n / 2 + kLeaf - 1) / kLeaf * kLeaf;
            return Op::join(run(p, half, shift), run(p + half, n - half, shift));
        }
        return short_run(p, n, shift);
    }
    // Not inlined: in copies of the recursion GCC 12 warns of lengths that never occur.
    __attribute__((noinline)) static A short_run(const T* p, int64_t n, A shift) {
        if constexpr (is_narrow<T>) {
            A block[kLeaf];
            widen(p, block, n);
            return leaf(block, n, shift);
        } else {
            return leaf(reinterpret_cast<const A*>(p), n, shift);
        }
    }
    static A runs(const ReducePlan& plan, const T* p, int64_t from, int64_t to, A shift) {
        if (to - from == 1) return run(p + plan.over.offset(from), plan.run, shift);
        int64_t half = from + (to - from) / 2;
        return Op::join(runs(plan, p, from, half, shift), runs(plan, p, half, to, shift));
    }
    static void add_row(const A* p, int64_t width, A* acc, const A* shift) {
        constexpr int64_t L = V::lanes;
        int64_t c = 0;
        for (; c + L <= width; c += L)
            V::put(acc + c, Op::join(V::get(acc + c), Op::map(V::get(p + c), shift ? V::get(shift + c) : typename V::type{})));
        for (; c < width; ++c) acc[c] = Op::join(acc[c], static_cast<A>(Op::map(p[c], shift ? shift[c] : A{})));
    }
    static void columns(const ReducePlan& plan, const T* p, int64_t from, int64_t to, int64_t width, A* acc, const A* shift) {
        if (to - from > kLeafRows) {
            A other[kTile];
            int64_t half = from + (to - from) / 2;
            columns(plan, p, from, half, width, acc, shift);
            columns(plan, p, half, to, width, other, shift);
            for (int64_t c = 0; c < width; ++c) acc[c] = Op::join(acc[c], other[c]);
            return;
        }
        std::fill(acc, acc + width, Op::template identity<A>());
        for (int64_t j = from; j < to; ++j) {
            const T* row = p + plan.over.offset(j);
            if constexpr (is_narrow<T>) {
                A block[kTile];
                widen(row, block, width);
                add_row(block, width, acc, shift);
            } else {
                add_row(reinterpret_cast<const A*>(row), width, acc, shift);
            }
        }
    }
    // Units [from, to) of one tile of outputs. A unit is a step of `over`, or an element of the only run.
    static void tile(const ReducePlan& plan, const T* data, int64_t index, int64_t from, int64_t to, A* acc, const A* shift) {
        int64_t across = (plan.width + kTile - 1) / kTile, o = index / across, c = index % across * kTile;
        int64_t at = o * plan.width + c, width = std::min(kTile, plan.width - c);
        const T* p = data + plan.keep.offset(o) + c;
        const A* s = shift ? shift + at : nullptr;
        if (plan.width > 1) columns(plan, p, from, to, width, acc + at, s);
        else if (plan.over.steps > 1) acc[at] = runs(plan, p, from, to, s ? *s : A{});
        else acc[at] = run(p + from, to - from, s ? *s : A{});
    }
    // acc[0:outputs] = the joined values, unfinished. `partials` holds plan.partials() accumulators.
    static void reduce(const ReducePlan& plan, int threads, const T* data, A* acc, const A* shift, A* partials) {
        if (plan.outputs == 0) return;
        if (plan.reduced == 0) {
            std::fill(acc, acc + plan.outputs, Op::template identity<A>());
            return;
        }
        if (plan.pieces == 1) {
            int64_t cost = plan.reduced * std::min(plan.width, kTile);
            parallel_ranges(threads, plan.tiles, kSplit / cost, [&](int64_t begin, int64_t end) {
                for (int64_t t = begin; t < end; ++t) tile(plan, data, t, 0, plan.units, acc, shift);
            });
            return;
        }
        parallel_for(threads, plan.tiles * plan.pieces, [&](int64_t task) {
            int64_t k = task / plan.tiles;
            tile(plan, data, task % plan.tiles, plan.units * k / plan.pieces, plan.units * (k + 1) / plan.pieces,
                 partials + k * plan.outputs, shift);
        });
        std::copy(partials, partials + plan.outputs, acc);
        for (int64_t k = 1; k < plan.pieces; ++k)
            for (int64_t i = 0; i < plan.outputs; ++i) acc[i] = Op::join(acc[i], partials[k * plan.outputs + i]);
    }
};

// Sums and products of signed integers wrap around, as NumPy's do: they accumulate as unsigned.
template <class T> struct Wrapping { using type = wide_t<T>; };
template <> struct Wrapping<int32_t> { using type = uint32_t; };
template <> struct Wrapping<int64_t> { using type = uint64_t; };
template <class T> using wrapping_t = typename Wrapping<T>::type;

struct SumOp {
    template <class T> using acc_t = wrapping_t<T>;
    template <class A> static A identity() { return A{}; }
    template <class X> static X map(X x, X) { return x; }
    template <class X> static X join(X a, X b) { return a + b; }
    template <class T, class A> static wide_t<T> finish(A a, int64_t) { return static_cast<wide_t<T>>(a); }
};
struct SumSquareOp : SumOp {
    template <class X> static X map(X x, X) { return x * x; }
};
// Sum of squares around `shift`.
struct DeviationOp : SumOp {
    template <class X> static X map(X x, X shift) { return (x - shift) * (x - shift); }
};
struct MaxOp {
    template <class T> using acc_t = wide_t<T>;
    template <class A> static A identity() {
        if constexpr (std::numeric_limits<A>::has_infinity) return -std::numeric_limits<A>::infinity();
        else return std::numeric_limits<A>::lowest();
    }
    template <class X> static X map(X x, X) { return x; }
    template <class X> static X join(X a, X b) { return (b > a) | (b != b) ? b : a; }  // NaN wins
    template <class T, class A> static A finish(A a, int64_t) { return a; }
};
struct MinOp : MaxOp {
    template <class A> static A identity() {
        if constexpr (std::numeric_limits<A>::has_infinity) return std::numeric_limits<A>::infinity();
        else return std::numeric_limits<A>::max();
    }
    template <class X> static X join(X a, X b) { return (b < a) | (b != b) ? b : a; }
};
// Sum of magnitudes; a signed integer arrives as unsigned (see Wrapping).
enum class Sign { Real, Signed, Unsigned };
template <Sign S> struct AbsSumOp : SumOp {
    template <class X> static X map(X x, X) {
        if constexpr (S == Sign::Real) return x < X{} ? -x : x;
        else if constexpr (S == Sign::Signed) return x > (~X{} >> 1) ? X{} - x : x;
        else return x;
    }
};

}  // namespace OPWEAVE_ISA
}  // namespace opweave
