// Scaled dot-product attention over strips of query rows: a strip meets all the keys it may see, its softmax is taken in
// place, and its values are summed up, so that scores exist for one strip a thread at a time.
#pragma once

#include <vector>

#include "kernels/gemm.h"

namespace opweave {
namespace OPWEAVE_ISA {

// Rows of one head of one sample, contiguous inside: row i of head h of sample b is at data[b * batch + h * head + i * row].
template <class T> struct Heads {
    T* data = nullptr;
    int64_t batch = 0, head = 0, row = 0;
    T* at(int64_t b, int64_t h, int64_t i = 0) const { return data + b * batch + h * head + i * row; }
};

// A tensor as [samples, heads, length, size], whatever way it is laid out.
struct HeadShape {
    int64_t samples, heads, length, size;
    bool packed;  // [samples, length, heads * size], else [samples, heads, length, size]
    Shape as_cache(int64_t past) const { return {samples, heads, past + length, size}; }
    template <class T> Heads<T> over(T* data) const {
        if (packed) return {data, length * heads * size, size, heads * size};
        return {data, heads * length * size, length * size, size};
    }
};
inline HeadShape head_shape(const Shape& s, int64_t heads, const char* name) {
    if (s.rank == 4) return {s[0], s[1], s[2], s[3], false};
    if (s.rank != 3 || heads <= 0 || s[2] % heads != 0)
        throw BadOperand(std::string(name) + " of shape " + s.str() + " is not made of " + std::to_string(heads) + " heads");
    return {s[0], heads, s[1], s[2] / heads, true};
}

// cache = past, then the new rows, head by head: [samples, heads, past_length + length, row_bytes]. Strides in bytes.
void append_rows(const char* past, Heads<const char> fresh, const HeadShape& s, int64_t past_length, size_t row_bytes, char* cache);

// Added to the scores (bias), or which of them count (allowed); at most one of the two is set. Columns from `length` on
// do not count.
struct ScoreMask {
    const float* bias = nullptr;
    const uint8_t* allowed = nullptr;
    int64_t batch = 0, head = 0, row = 0;  // strides in elements, 0 where broadcast
    int64_t length = 0;
};

enum class ScoreOutput : uint8_t { Raw, Capped, Masked, Probabilities };

struct AttentionTask {
    int64_t samples = 0, heads = 0, kv_heads = 0, queries = 0, keys = 0, size = 0, value_size = 0;
    Heads<const float> q, k, v;
    Heads<float> y;
    float scale = 1, softcap = 0;  // 0: none
    ScoreMask mask;
    bool causal = false;
    int64_t left = -1, right = -1;         // window around a query's position; -1: unbounded
    std::vector<int64_t> offset, visible;  // per sample: position of the first query; number of keys that count
    float* scores = nullptr;               // [samples, heads, queries, keys] at the stage `stage`, if wanted
    ScoreOutput stage = ScoreOutput::Raw;

    double flops() const {
        return 2.0 * static_cast<double>(samples * heads * queries) * static_cast<double>(keys) * static_cast<double>(size + value_size);
    }
};

// Rows that see no key give zeros. Uses slots 1 to 3 of scratch().
void attend(const AttentionTask& task, int threads);

}  // namespace OPWEAVE_ISA
}  // namespace opweave
