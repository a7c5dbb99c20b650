// NonMaxSuppression (https://onnx.ai/onnx/operators/onnx__NonMaxSuppression.html). How many boxes survive depends on the
// data, so prepare() selects and run() writes. Boxes without an area overlap nothing; a NaN score is never selected.
#include <algorithm>

#include "kernels/axes.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

enum : int { kBoxes, kScores, kLimit, kOverlap, kScore };

struct Box {
    float x0, y0, x1, y1, area;
};
struct Selected {
    int64_t batch, type, box;
};

Box corners(const float* b, bool centred) {
    Box r = centred ? Box{b[0] - b[2] / 2, b[1] - b[3] / 2, b[0] + b[2] / 2, b[1] + b[3] / 2, 0}
                    : Box{std::min(b[1], b[3]), std::min(b[0], b[2]), std::max(b[1], b[3]), std::max(b[0], b[2]), 0};
    r.area = (r.x1 - r.x0) * (r.y1 - r.y0);
    return r;
}

// Whether intersection over union exceeds the limit.
bool overlaps(const Box& a, const Box& b, float limit) {
    const float width = std::min(a.x1, b.x1) - std::max(a.x0, b.x0), height = std::min(a.y1, b.y1) - std::max(a.y0, b.y0);
    if (!(width > 0) || !(height > 0) || !(a.area > 0) || !(b.area > 0)) return false;
    const float common = width * height, all = a.area + b.area - common;
    return common > 0 && all > 0 && common / all > limit;
}

struct Rules {
    int64_t limit = 0;        // boxes of a class
    float overlap = 0, score = 0;
    bool scored = false;      // `score` counts
};

// The boxes of one class of one sample that survive, best first.
void select(const std::vector<Box>& boxes, const float* scores, const Rules& rules, std::vector<int64_t>& kept) {
    std::vector<int64_t> order;
    for (size_t i = 0; i < boxes.size(); ++i)
        if (scores[i] == scores[i] && (!rules.scored || scores[i] > rules.score)) order.push_back(static_cast<int64_t>(i));
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return scores[a] > scores[b]; });
    kept.clear();
    for (int64_t candidate : order) {
        if (static_cast<int64_t>(kept.size()) >= rules.limit) return;
        const Box& box = boxes[static_cast<size_t>(candidate)];
        const auto covers = [&](int64_t other) { return overlaps(box, boxes[static_cast<size_t>(other)], rules.overlap); };
        if (std::none_of(kept.begin(), kept.end(), covers)) kept.push_back(candidate);
    }
}

class RunSuppression final : public Prepared {
  public:
    explicit RunSuppression(std::vector<Selected> selected) : selected_(std::move(selected)) {}
    void run(const Context&, const Tensor*, const Tensor* out) const override {
        int64_t* y = out[0].as<int64_t>();
        for (const Selected& s : selected_) {
            *y++ = s.batch;
            *y++ = s.type;
            *y++ = s.box;
        }
    }

  private:
    std::vector<Selected> selected_;
};

class Suppression final : public Kernel {
  public:
    explicit Suppression(const NodeSpec& spec) : centred_(spec.attrs.integer("center_point_box", 0) != 0) {
        if (!spec.has_input(kBoxes) || !spec.has_input(kScores)) throw Unsupported("an input is missing");
        for (int i = kLimit; i <= kScore; ++i) has_[i] = spec.has_input(static_cast<size_t>(i));
    }
    uint32_t value_inputs() const override { return 31; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape &boxes = in[kBoxes].shape(), &scores = in[kScores].shape();
        expect_dtype(in[kBoxes], DType::F32, "boxes");
        expect_dtype(in[kScores], DType::F32, "scores");
        if (boxes.rank != 3 || scores.rank != 3 || boxes[2] != 4 || boxes[0] != scores[0] || boxes[1] != scores[2])
            throw BadOperand("boxes " + boxes.str() + " and scores " + scores.str() + " must be [N, B, 4] and [N, C, B]");
        std::vector<Selected> selected = all(in, rules(in));
        out[0] = {DType::I64, {static_cast<int64_t>(selected.size()), 3}};
        return std::make_unique<RunSuppression>(std::move(selected));
    }

  private:
    // An optional operand may also be given without elements.
    bool given(const Tensor* in, int i) const { return has_[i] && in[i].present() && in[i].count() > 0; }
    float number(const Tensor* in, int i, const char* name) const {
        expect_dtype(in[i], DType::F32, name);
        if (in[i].count() != 1) throw BadOperand(std::string(name) + " must be one number, its shape is " + in[i].shape().str());
        return *in[i].as<float>();
    }
    Rules rules(const Tensor* in) const {
        Rules r;
        if (given(in, kLimit)) r.limit = scalar_int(in[kLimit], "max_output_boxes_per_class");
        if (given(in, kOverlap)) r.overlap = number(in, kOverlap, "iou_threshold");
        r.scored = given(in, kScore);
        if (r.scored) r.score = number(in, kScore, "score_threshold");
        if (!(r.overlap >= 0 && r.overlap <= 1)) throw BadOperand("iou_threshold is " + std::to_string(r.overlap) + ", it must lie in [0, 1]");
        return r;
    }
    std::vector<Selected> all(const Tensor* in, const Rules& rules) const {
        const Shape& s = in[kScores].shape();
        std::vector<Selected> selected;
        std::vector<Box> boxes(static_cast<size_t>(s[2]));
        std::vector<int64_t> kept;
        for (int64_t b = 0; rules.limit > 0 && b < s[0]; ++b) {
            for (int64_t i = 0; i < s[2]; ++i) boxes[static_cast<size_t>(i)] = corners(in[kBoxes].as<float>() + (b * s[2] + i) * 4, centred_);
            for (int64_t c = 0; c < s[1]; ++c) {
                select(boxes, in[kScores].as<float>() + (b * s[1] + c) * s[2], rules, kept);
                for (int64_t i : kept) selected.push_back({b, c, i});
            }
        }
        return selected;
    }
    bool centred_, has_[5] = {};
};

}  // namespace

void register_nms(Registry& r) {
    r.add("NonMaxSuppression", [](const NodeSpec& s) { return std::make_unique<Suppression>(s); });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
