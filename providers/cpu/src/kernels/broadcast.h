// NumPy broadcasting for work that goes over the output in blocks. Every operand is seen as alternating groups of
// dimensions, copied or repeated; a block of it is a pointer into the operand where the bytes already lie that way, and
// a filled buffer where not. Kernels over blocks therefore need one form only, with contiguous operands.
#pragma once

#include <algorithm>
#include <cstring>

#include "core/kernel.h"

namespace opweave {
namespace OPWEAVE_ISA {

constexpr int64_t kBlock = 1024;          // elements
constexpr int64_t kBlockGrain = 1 << 15;  // elements worth a thread

// The shape that all present operands broadcast to. https://onnx.ai/onnx/repo-docs/Broadcasting.html
inline Shape broadcast_shape(const Tensor* in, size_t n) {
    Shape out;
    for (size_t k = 0; k < n; ++k)
        if (in[k].present()) out.rank = std::max(out.rank, in[k].shape().rank);
    std::fill(out.dims, out.dims + out.rank, 1);
    for (size_t k = 0; k < n; ++k) {
        if (!in[k].present()) continue;
        const Shape& s = in[k].shape();
        for (int i = 0, at = out.rank - s.rank; i < s.rank; ++i, ++at) {
            if (s[i] == out[at] || s[i] == 1) continue;
            if (out[at] != 1) throw BadOperand("operand " + std::to_string(k) + " of shape " + s.str() + " does not broadcast to " + out.str());
            out[at] = s[i];
        }
    }
    return out;
}

class Broadcast {
  public:
    enum class Kind : uint8_t { Whole, Single, Periodic, Mixed };

    // `operand` must broadcast to `out`.
    Broadcast(const Shape& operand, const Shape& out) {
        int64_t stride = 1;
        for (int i = 1; i <= out.rank; ++i) {
            int64_t dim = out[out.rank - i], own = i <= operand.rank ? operand[operand.rank - i] : 1;
            if (own != dim && own != 1) throw BadOperand("shape " + operand.str() + " does not broadcast to " + out.str());
            if (dim == 1) continue;
            int64_t step = own == 1 ? 0 : stride;
            if (groups_ > 0 && (steps_[groups_ - 1] == 0) == (step == 0)) dims_[groups_ - 1] *= dim;
            else dims_[groups_] = dim, steps_[groups_++] = step;
            stride *= own;
        }
        if (groups_ == 0 || (groups_ == 1 && steps_[0] == 1)) kind = Kind::Whole;
        else if (groups_ == 1) kind = Kind::Single;
        else if (groups_ == 2 && steps_[0] == 1) kind = Kind::Periodic;
    }
    Kind kind = Kind::Mixed;
    int64_t run() const { return groups_ ? dims_[0] : 1; }  // elements of the innermost group

    // Where output elements [start, start + n) lie together in the operand, the first one's index; otherwise -1.
    int64_t contiguous(int64_t start, int64_t n) const {
        if (kind == Kind::Whole) return start;
        if (steps_[0] != 1 || start % dims_[0] + n > dims_[0]) return -1;
        int64_t at[kMaxRank];
        return seek(start, at);
    }
    // to[0:n] = the operand as seen by output elements [start, start + n); `size` is bytes of an element.
    void read(const void* operand, int64_t start, int64_t n, void* to, size_t size) const {
        switch (size) {
            case 1: return read_as<uint8_t>(operand, start, n, to);
            case 2: return read_as<uint16_t>(operand, start, n, to);
            case 4: return read_as<uint32_t>(operand, start, n, to);
            default: return read_as<uint64_t>(operand, start, n, to);
        }
    }

  private:
    int64_t seek(int64_t start, int64_t* at) const {
        int64_t offset = 0;
        for (int g = 0; g < groups_; ++g) {
            at[g] = start % dims_[g];
            start /= dims_[g];
            offset += at[g] * steps_[g];
        }
        return offset;
    }
    template <class U> void read_as(const void* operand, int64_t start, int64_t n, void* to) const {
        const U* from = static_cast<const U*>(operand);
        U* dst = static_cast<U*>(to);
        int64_t at[kMaxRank], offset = seek(start, at);
        while (n > 0) {
            int64_t run = groups_ ? std::min(n, dims_[0] - at[0]) : n;
            if (groups_ == 0 || steps_[0] == 0) std::fill(dst, dst + run, from[offset]);
            else std::copy(from + offset, from + offset + run, dst);
            dst += run;
            n -= run;
            if (n > 0) offset = advance(offset, at);
        }
    }
    // From anywhere in a run to the start of the next one.
    int64_t advance(int64_t offset, int64_t* at) const {
        offset -= at[0] * steps_[0];
        at[0] = 0;
        for (int g = 1; g < groups_; ++g) {
            offset += steps_[g];
            if (++at[g] < dims_[g]) break;
            offset -= dims_[g] * steps_[g];
            at[g] = 0;
        }
        return offset;
    }
    int groups_ = 0;                        // innermost first
    int64_t dims_[kMaxRank], steps_[kMaxRank];  // a step of 0 repeats
};

}  // namespace OPWEAVE_ISA
}  // namespace opweave
