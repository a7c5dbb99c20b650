// The engine of attention.h. No operator is registered here.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/attention.h"
#include "kernels/product.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

constexpr int64_t kStripBytes = 256 * 1024;
constexpr int64_t kMostRows = 48;
constexpr int64_t kPackFrom = 8;  // query rows for which packing keys and values pays

struct Span {
    int64_t begin, end;
};

// The keys that query `i` of a sample sees, as far as causality, window and lengths go.
Span span_of(const AttentionTask& t, int64_t sample, int64_t i) {
    const int64_t position = t.offset[static_cast<size_t>(sample)] + i;
    Span s{0, std::min(t.keys, t.visible[static_cast<size_t>(sample)])};
    if (t.mask.bias || t.mask.allowed) s.end = std::min(s.end, t.mask.length);
    if (t.causal) s.end = std::min(s.end, position + 1);
    if (t.right >= 0) s.end = std::min(s.end, position + t.right + 1);
    if (t.left >= 0) s.begin = std::max<int64_t>(0, position - t.left);
    s.end = std::max<int64_t>(s.end, 0);
    s.begin = std::min(s.begin, s.end);
    return s;
}

float largest(const float* x, int64_t n) {
    vf most = splat(-kInf);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) most = vmax(load(x + i), most);
    float m = -kInf;
    for (int j = 0; j < kLanes; ++j) m = most[j] > m ? most[j] : m;
    for (; i < n; ++i) m = x[i] > m ? x[i] : m;
    return m;
}

// In place. A row without a finite maximum becomes zeros: it sees nothing. NaN stays.
void softmax(float* x, int64_t n) {
    const float most = largest(x, n);
    if (most == -kInf) {
        bool nan = false;
        for (int64_t i = 0; i < n; ++i) nan |= x[i] != x[i];
        return std::fill(x, x + n, nan ? kNan : 0.f);
    }
    vf total{};
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        const vf e = vexp_negative(load(x + i) - most);
        total += e;
        store(x + i, e);
    }
    float rest = 0;
    if (i < n) {
        const int left = static_cast<int>(n - i);
        store_part(x + i, vexp_negative(load_part(x + i, left) - most), left);
        for (; i < n; ++i) rest += x[i];
    }
    const float scale = 1 / (sum(total) + rest);
    for (i = 0; i < n; ++i) x[i] *= scale;
}

// Keys and values of one head as packed panels; null where they are read in place.
struct Panels {
    const float *keys = nullptr, *values = nullptr;
};

class Strip {
  public:
    Strip(const AttentionTask& t, const Panels& panels, int64_t sample, int64_t head, int64_t first, int64_t rows)
        : t_(t), panels_(panels), b_(sample), h_(head), first_(first), rows_(rows), kv_head_(head / (t.heads / t.kv_heads)) {
        for (int64_t r = 0; r < rows; ++r) seen_ = std::max(seen_, span_of(t, sample, first + r).end);
        columns_ = t.scores ? t.keys : std::min(t.keys, round_up(seen_, kPanel));
        s_ = static_cast<float*>(scratch(1, static_cast<size_t>(rows * columns_) * 4));
    }
    void run() const {
        score();
        for (int64_t r = 0; r < rows_; ++r) normalize(r);
        sum_values();
    }

  private:
    float* row(int64_t r) const { return s_ + r * columns_; }
    void emit(ScoreOutput stage, int64_t r) const {
        if (t_.scores && t_.stage == stage) std::copy(row(r), row(r) + t_.keys, t_.scores + ((b_ * t_.heads + h_) * t_.queries + first_ + r) * t_.keys);
    }
    void score() const {
        Epilogue e;
        e.alpha = t_.scale;
        const ActivationSpec cap{Activation::ScaledTanh, t_.softcap, 1 / t_.softcap};
        const bool raw = t_.scores && t_.stage == ScoreOutput::Raw;
        if (t_.softcap > 0 && !raw) e.activation = cap;
        const float* q = t_.q.at(b_, h_, first_);
        if (panels_.keys) gemm(rows_, columns_, t_.size, q, t_.q.row, BView::packed(panels_.keys, t_.size), s_, columns_, e, 1);
        else product(rows_, columns_, t_.size, {q, {t_.q.row, 1}}, {t_.k.at(b_, kv_head_), {1, t_.k.row}}, s_, columns_, e, 1);
        for (int64_t r = 0; r < rows_; ++r) emit(ScoreOutput::Raw, r);
        if (t_.softcap > 0 && raw) activate(cap, s_, s_, rows_ * columns_);
        for (int64_t r = 0; r < rows_; ++r) emit(ScoreOutput::Capped, r);
    }
    void normalize(int64_t r) const {
        float* s = row(r);
        const Span span = span_of(t_, b_, first_ + r);
        const int64_t at = b_ * t_.mask.batch + h_ * t_.mask.head + (first_ + r) * t_.mask.row;
        if (t_.mask.bias)
            for (int64_t j = span.begin; j < span.end; ++j) s[j] += t_.mask.bias[at + j];
        if (t_.mask.allowed)
            for (int64_t j = span.begin; j < span.end; ++j) s[j] = t_.mask.allowed[at + j] ? s[j] : -kInf;
        if (t_.scores && t_.stage == ScoreOutput::Masked) {
            outside(s, span, -kInf);
            emit(ScoreOutput::Masked, r);
        }
        softmax(s + span.begin, span.end - span.begin);
        outside(s, span, 0);
        emit(ScoreOutput::Probabilities, r);
    }
    void outside(float* s, Span span, float value) const {
        std::fill(s, s + span.begin, value);
        std::fill(s + span.end, s + columns_, value);
    }
    void sum_values() const {
        float* y = t_.y.at(b_, h_, first_);
        if (panels_.values) gemm(rows_, t_.value_size, seen_, s_, columns_, BView::packed(panels_.values, t_.keys), y, t_.y.row, {}, 1);
        else product(rows_, t_.value_size, seen_, {s_, {columns_, 1}}, {t_.v.at(b_, kv_head_), {t_.v.row, 1}}, y, t_.y.row, {}, 1);
    }

    const AttentionTask& t_;
    const Panels& panels_;
    const int64_t b_, h_, first_, rows_, kv_head_;
    int64_t seen_ = 0, columns_ = 0;  // keys that some row sees; scores computed, in whole panels
    float* s_ = nullptr;
};

// All the query heads that share one head of keys and values.
void attend_group(const AttentionTask& t, int64_t sample, int64_t kv_head, int threads) {
    const int64_t group = t.heads / t.kv_heads;
    Panels panels;
    if (group * t.queries >= kPackFrom) {
        const int64_t floats = round_up(packed_b_count(t.size, t.keys), 16);
        float* packed = static_cast<float*>(scratch(2, static_cast<size_t>(floats + packed_b_count(t.keys, t.value_size)) * 4));
        pack_b(t.k.at(sample, kv_head), 1, t.k.row, t.size, t.keys, packed, threads);
        pack_b(t.v.at(sample, kv_head), t.v.row, 1, t.keys, t.value_size, packed + floats, threads);
        panels = {packed, packed + floats};
    }
    const int64_t fit = std::max<int64_t>(6, kStripBytes / 4 / std::max<int64_t>(t.keys, 1));
    const int64_t strips = (t.queries + std::min(fit, kMostRows) - 1) / std::min(fit, kMostRows);
    parallel_for(threads, group * strips, [&](int64_t i) {
        const int64_t strip = i % strips, first = t.queries * strip / strips;
        Strip(t, panels, sample, kv_head * group + i / strips, first, t.queries * (strip + 1) / strips - first).run();
    });
}

}  // namespace

void append_rows(const char* past, Heads<const char> fresh, const HeadShape& s, int64_t past_length, size_t row_bytes, char* cache) {
    const size_t before = row_bytes * static_cast<size_t>(past_length);
    for (int64_t b = 0; b < s.samples; ++b)
        for (int64_t h = 0; h < s.heads; ++h) {
            if (before) std::memcpy(cache, past + static_cast<size_t>(b * s.heads + h) * before, before);
            cache += before;
            for (int64_t i = 0; i < s.length && row_bytes; ++i, cache += row_bytes) std::memcpy(cache, fresh.at(b, h, i), row_bytes);
        }
}

void attend(const AttentionTask& t, int threads) {
    if (t.queries == 0) return;
    for_each_batch(threads, t.samples * t.kv_heads, t.flops(), [&](int64_t i, int use) {
        attend_group(t, i / t.kv_heads, i % t.kv_heads, use);
    });
}

void register_attention_strips(Registry&) {}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
