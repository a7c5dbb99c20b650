// AffineGrid: the points of a regular grid over [-1, 1] under one affine map an image.
// https://onnx.ai/onnx/operators/onnx__AffineGrid.html
#include "kernels/dtypes.h"
#include "kernels/indices.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

template <class T> struct AffineGridRun final : Prepared {
    using U = wide_t<T>;
    Shape grid;  // N, spatial axes, coordinates
    bool corners = false;

    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const int axes = grid.rank - 2;
        const int64_t points = grid.count(1, grid.rank - 1);
        parallel_ranges(context.threads, grid[0] * points, 4096, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                U point[3];  // the last axis first
                int64_t rest = i % points;
                for (int d = 0; d < axes; ++d) {
                    const int64_t extent = grid[axes - d];
                    point[d] = place(rest % extent, extent);
                    rest /= extent;
                }
                const T* row = in[0].as<T>() + i / points * axes * (axes + 1);
                for (int k = 0; k < axes; ++k, row += axes + 1) {
                    U sum = widen(row[axes]);
                    for (int d = 0; d < axes; ++d) sum += widen(row[d]) * point[d];
                    out[0].as<T>()[i * axes + k] = narrow<T>(sum);
                }
            }
        });
    }

  private:
    U place(int64_t i, int64_t extent) const {
        if (!corners) return static_cast<U>(2 * i + 1) / static_cast<U>(extent) - 1;
        return extent == 1 ? U{0} : static_cast<U>(2 * i) / static_cast<U>(extent - 1) - 1;
    }
};

class AffineGrid final : public Kernel {
  public:
    explicit AffineGrid(bool corners) : corners_(corners) {}
    uint32_t value_inputs() const override { return 2u; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape& theta = in[0].shape();
        expect_dtype(in[1], DType::I64, "size");
        const int64_t axes = in[1].count() - 2;
        if (axes != 2 && axes != 3) throw BadOperand("size names " + std::to_string(in[1].count()) + " dimensions, expected 4 or 5");
        const int64_t* size = in[1].as<int64_t>();
        if (theta != Shape{size[0], axes, axes + 1})
            throw BadOperand("theta of shape " + theta.str() + " is no map of " + std::to_string(size[0]) + " images");
        out[0] = {in[0].dtype(), {size[0]}};
        for (int64_t i = 2; i < in[1].count(); ++i) {
            if (size[i] < 0) throw BadOperand("a dimension of " + std::to_string(size[i]));
            out[0].shape.push_back(size[i]);
        }
        out[0].shape.push_back(axes);
        return visit<FloatTypes>(in[0].dtype(), [&](auto t) -> std::unique_ptr<Prepared> {
            auto run = std::make_unique<AffineGridRun<decltype(t)>>();
            run->grid = out[0].shape;
            run->corners = corners_;
            return run;
        });
    }

  private:
    bool corners_;
};

}  // namespace

void register_affine_grid(Registry& r) {
    r.add("AffineGrid", [](const NodeSpec& s) -> std::unique_ptr<Kernel> {
        expect_bytes(s, 0);
        expect_bytes(s, 1);
        visit<FloatTypes>(s.inputs[0].dtype, [](auto) {});
        return std::make_unique<AffineGrid>(s.attrs.integer("align_corners", 0) != 0);
    });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
