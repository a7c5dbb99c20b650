// Copies between strided views: what Transpose, Slice, Split, Concat, Expand, Tile, Pad and the like all come down to.
// Elements are moved by their size, whatever their type.
#pragma once

#include <vector>

#include "kernels/indices.h"
#include "kernels/simd.h"

namespace opweave {
namespace OPWEAVE_ISA {

// One dimension of both views; strides in elements, of any sign, 0 to repeat.
struct StridedDim { int64_t extent, from, to; };

class StridedCopy {
  public:
    // `dims` from the outermost in; the innermost ones should be contiguous in the destination.
    StridedCopy(size_t element, const std::vector<StridedDim>& dims) : unit_(element) {
        for (const StridedDim& d : dims) {
            if (d.extent == 0) empty_ = true;
            if (d.extent != 1) add(d);
        }
        if (!dims_.empty() && dims_.back().from == 1 && dims_.back().to == 1) {
            unit_ *= static_cast<size_t>(dims_.back().extent);
            dims_.pop_back();
        }
        for (StridedDim& d : dims_) {
            d.from *= static_cast<int64_t>(element);
            d.to *= static_cast<int64_t>(element);
        }
        find_tiles();
    }

    void run(int threads, const char* from, char* to) const {
        if (empty_ || unit_ == 0) return;
        if (dims_.empty()) return copy_run(threads, from, to);
        with_block_copy(unit_, [&](auto copy) {
            if (tiled_) tiles(threads, from, to, copy);
            else rows(threads, from, to, copy);
        });
    }

    bool tiled() const { return tiled_; }

  private:
    static constexpr int64_t kTile = 32, kGrainBytes = 65536;

    void add(const StridedDim& d) {
        if (!dims_.empty()) {
            StridedDim& last = dims_.back();
            if (last.from == d.from * d.extent && last.to == d.to * d.extent) {
                last = {last.extent * d.extent, d.from, d.to};
                return;
            }
        }
        dims_.push_back(d);
    }

    // Where another dimension than the innermost is contiguous in the source, the two are walked in square tiles, so that
    // both sides use whole cache lines.
    void find_tiles() {
        const int64_t unit = static_cast<int64_t>(unit_);
        if (unit > 16 || dims_.size() < 2 || dims_.back().to != unit || dims_.back().extent < 4) return;
        for (size_t i = 0; i + 1 < dims_.size(); ++i) {
            if (dims_[i].from != unit || dims_[i].extent < 4) continue;
            const StridedDim dense = dims_[i];
            dims_.erase(dims_.begin() + static_cast<std::ptrdiff_t>(i));
            dims_.insert(dims_.end() - 1, dense);
            tiled_ = true;
            return;
        }
    }

    void copy_run(int threads, const char* from, char* to) const {
        parallel_ranges(threads, static_cast<int64_t>(unit_), 4 * kGrainBytes, [&](int64_t begin, int64_t end) {
            std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
        });
    }

    // Byte offsets of position `index` of the outermost `n` dimensions.
    void locate(int64_t index, size_t n, int64_t& from, int64_t& to) const {
        from = to = 0;
        for (size_t i = n; i-- > 0;) {
            const int64_t at = index % dims_[i].extent;
            index /= dims_[i].extent;
            from += at * dims_[i].from;
            to += at * dims_[i].to;
        }
    }
    int64_t positions(size_t n) const {
        int64_t product = 1;
        for (size_t i = 0; i < n; ++i) product *= dims_[i].extent;
        return product;
    }

    template <class Copy> void rows(int threads, const char* from, char* to, Copy copy) const {
        const StridedDim row = dims_.back();
        const size_t outer = dims_.size() - 1;
        const int64_t grain = kGrainBytes / static_cast<int64_t>(unit_ + 8) + 1;
        parallel_ranges(threads, positions(outer) * row.extent, grain, [&](int64_t begin, int64_t end) {
            while (begin < end) {
                const int64_t first = begin % row.extent, n = std::min(row.extent - first, end - begin);
                int64_t f, t;
                locate(begin / row.extent, outer, f, t);
                const char* source = from + f + first * row.from;
                char* target = to + t + first * row.to;
                for (int64_t i = 0; i < n; ++i) copy(target + i * row.to, source + i * row.from);
                begin += n;
            }
        });
    }

    template <class Copy> void tiles(int threads, const char* from, char* to, Copy copy) const {
        const StridedDim a = dims_[dims_.size() - 2], b = dims_.back();
        const size_t outer = dims_.size() - 2;
        const int64_t down = (a.extent + kTile - 1) / kTile, across = (b.extent + kTile - 1) / kTile;
        const int64_t grain = kGrainBytes / (kTile * kTile * static_cast<int64_t>(unit_)) + 1;
        parallel_ranges(threads, positions(outer) * down * across, grain, [&](int64_t begin, int64_t end) {
            for (int64_t tile = begin; tile < end; ++tile) {
                int64_t f, t;
                locate(tile / (down * across), outer, f, t);
                const int64_t row = tile / across % down * kTile, column = tile % across * kTile;
                const int64_t rows = std::min(kTile, a.extent - row), columns = std::min(kTile, b.extent - column);
                const char* source = from + f + row * a.from + column * b.from;
                char* target = to + t + row * a.to + column * b.to;
                auto part = [&](int64_t i0, int64_t j0, int64_t i1, int64_t j1) {
                    for (int64_t i = i0; i < i1; ++i)
                        for (int64_t j = j0; j < j1; ++j)
                            copy(target + i * a.to + j * b.to, source + i * a.from + j * b.from);
                };
                if (unit_ != 4) {
                    part(0, 0, rows, columns);
                    continue;
                }
                const int64_t full = rows - rows % kLanes, wide = columns - columns % kLanes;
                for (int64_t i = 0; i < full; i += kLanes)
                    for (int64_t j = 0; j < wide; j += kLanes)
                        square(source + i * 4 + j * b.from, b.from, target + i * a.to + j * 4, a.to);
                part(0, wide, full, columns);
                part(full, 0, rows, columns);
            }
        });
    }

    // kLanes rows of 4-byte elements become columns; the bits are only moved.
    static void square(const char* from, int64_t from_stride, char* to, int64_t to_stride) {
        vf v[kLanes];
        for (int i = 0; i < kLanes; ++i) std::memcpy(&v[i], from + i * from_stride, sizeof v[i]);
        transpose(v);
        for (int i = 0; i < kLanes; ++i) std::memcpy(to + i * to_stride, &v[i], sizeof v[i]);
    }

    size_t unit_;                   // bytes moved at once
    std::vector<StridedDim> dims_;  // strides in bytes
    bool empty_ = false, tiled_ = false;
};

// A kernel whose run is one copy from input 0 to output 0, from an offset in elements.
struct StridedRun final : Prepared {
    StridedCopy copy;
    int64_t offset;  // bytes

    StridedRun(size_t element, const std::vector<StridedDim>& dims, int64_t first = 0)
        : copy(element, dims), offset(first * static_cast<int64_t>(element)) {
        algorithm = copy.tiled() ? "tiles" : "rows";
    }
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        copy.run(context.threads, in[0].as<char>() + offset, out[0].as<char>());
    }
};

}  // namespace OPWEAVE_ISA
}  // namespace opweave
