// Expand and Tile: along every dimension the input is repeated a whole number of times.
// https://onnx.ai/onnx/operators/onnx__Expand.html, __Tile.html
#include <algorithm>

#include "kernels/indices.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

constexpr size_t kSmallBlock = 4096;  // bytes; larger ones are copied from the input rather than from the output before

// A run of dimensions that repeat together.
struct Group {
    int64_t length, times;
    int64_t out() const { return length * times; }
};

struct Repeat final : Prepared {
    Group groups[kMaxRank] = {};  // outermost first; the last one is the block
    int outer = 0;                // groups but the last
    int64_t rows = 1;
    size_t element, block;        // bytes

    // `in` has the rank of `out`, whose dimensions are multiples of its own.
    Repeat(const Shape& in, const Shape& out, size_t size) : element(size) {
        int n = 0;
        for (int i = 0; i < in.rank; ++i) {
            Group g{in[i], in[i] ? out[i] / in[i] : 1};
            if (n > 0 && g.times == 1) groups[n - 1].length *= g.length;
            else if (n > 0 && groups[n - 1].length == 1) groups[n - 1] = {g.length, groups[n - 1].times * g.times};
            else groups[n++] = g;
        }
        if (n == 0) groups[n++] = {1, 1};
        outer = n - 1;
        for (int g = 0; g < outer; ++g) rows *= groups[g].out();
        block = static_cast<size_t>(groups[outer].length) * element;
    }

    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const int64_t times = groups[outer].times;
        if (out[0].count() == 0) return;
        const char* data = in[0].as<char>();
        char* to = out[0].as<char>();
        parallel_ranges(context.threads, rows * times, static_cast<int64_t>(65536 / block) + 1, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end;) {
                int64_t stop = std::min(end, i - i % times + times);
                fill(to + static_cast<size_t>(i) * block, data + static_cast<size_t>(source(i / times)) * block, static_cast<size_t>(stop - i));
                i = stop;
            }
        });
    }

  private:
    // The block of the input that an output row repeats.
    int64_t source(int64_t row) const {
        int64_t at = 0, stride = 1;
        for (int g = outer - 1; g >= 0; --g) {
            at += row % groups[g].out() % groups[g].length * stride;
            row /= groups[g].out();
            stride *= groups[g].length;
        }
        return at;
    }

    void fill(char* to, const char* from, size_t times) const {
        if (block >= kSmallBlock) {
            for (size_t i = 0; i < times; ++i) std::memcpy(to + i * block, from, block);
            return;
        }
        const size_t total = block * times;
        std::memcpy(to, from, block);
        for (size_t done = block; done < total;) {
            size_t n = std::min({done, total - done, std::max(kSmallBlock / block, size_t{1}) * block});
            std::memcpy(to + done, to, n);
            done += n;
        }
    }
};

class Expand final : public Kernel {
  public:
    uint32_t value_inputs() const override { return 1u << 1; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape &x = in[0].shape(), wanted = listed_shape(in[1], "shape");
        Shape from, to;
        for (int rank = std::max(x.rank, wanted.rank), i = 0; i < rank; ++i) {
            int a = i - (rank - x.rank), b = i - (rank - wanted.rank);
            int64_t own = a < 0 ? 1 : x[a], other = b < 0 ? 1 : wanted[b];
            if (own != other && own != 1 && other != 1)
                throw BadOperand("input of shape " + x.str() + " cannot expand to " + wanted.str());
            from.push_back(own);
            to.push_back(own == 1 ? other : own);
        }
        out[0] = {in[0].dtype(), to};
        out[0].count();
        return std::make_unique<Repeat>(from, to, size_of(in[0].dtype()));
    }
};

class Tile final : public Kernel {
  public:
    uint32_t value_inputs() const override { return 1u << 1; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape &x = in[0].shape(), repeats = listed_shape(in[1], "repeats");
        if (repeats.rank != x.rank)
            throw BadOperand(std::to_string(repeats.rank) + " repeats for an input of shape " + x.str());
        Shape to = x;
        for (int i = 0; i < x.rank; ++i)
            if (__builtin_mul_overflow(x[i], repeats[i], &to[i])) throw BadOperand("the output is too large");
        out[0] = {in[0].dtype(), to};
        out[0].count();
        return std::make_unique<Repeat>(x, to, size_of(in[0].dtype()));
    }
};

template <class K> Factory repeat() {
    return [](const NodeSpec& s) -> std::unique_ptr<Kernel> {
        expect_bytes(s);
        if (!s.has_input(1)) throw BadOperand("the second input is missing");
        return std::make_unique<K>();
    };
}

}  // namespace

void register_expand(Registry& r) {
    r.add("Expand", repeat<Expand>());
    r.add("Tile", repeat<Tile>());
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
