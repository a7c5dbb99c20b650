// Col2Im over one to three spatial axes: blocks added back into an image. https://onnx.ai/onnx/operators/onnx__Col2Im.html
#include "kernels/conv.h"
#include "kernels/dtypes.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

template <class T> class ColumnsToImage final : public Prepared {
  public:
    ColumnsToImage(const Window& window, int64_t planes) : window_(window), planes_(planes) {}
    void run(const Context& context, const Tensor* in, const Tensor* out) const override {
        const int64_t size = window_.in_size(), blocks = window_.out_size(), taps = window_.taps();
        const Positions all{0, window_.axis[0].out * window_.axis[1].out, 0, window_.axis[2].out};
        parallel_ranges(context.threads, planes_, 1 + 16384 / (1 + taps * blocks), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const T* from = in[0].as<T>() + i * taps * blocks;
                T* to = out[0].as<T>() + i * size;
                if constexpr (is_narrow<T>) {
                    float* columns = static_cast<float*>(scratch(1, static_cast<size_t>(taps * blocks) * 4));
                    float* image = static_cast<float*>(scratch(2, static_cast<size_t>(size) * 4));
                    widen(from, columns, taps * blocks);
                    std::fill(image, image + size, 0.f);
                    add_columns(window_, all, columns, blocks, image);
                    narrow(image, to, size);
                } else {
                    std::fill(to, to + size, T{});
                    add_columns(window_, all, from, blocks, to);
                }
            }
        });
    }

  private:
    Window window_;
    int64_t planes_;
};

std::vector<int64_t> sizes(const Tensor& t, const char* name) {
    if (!t.data || t.dtype() != DType::I64 || t.shape().rank != 1) throw BadOperand(std::string(name) + " must be a list of int64");
    std::vector<int64_t> list(t.as<int64_t>(), t.as<int64_t>() + t.count());
    for (int64_t v : list)
        if (v < 0 || v > kMostElements) throw BadOperand(std::string(name) + " holds " + std::to_string(v));
    return list;
}

class Col2ImKernel final : public Kernel {
  public:
    explicit Col2ImKernel(const NodeSpec& s) : attrs_(s.attrs) {
        if (!s.has_input(0) || !s.has_input(1) || !s.has_input(2)) throw BadOperand("an operand is missing");
        if (s.inputs[1].rank == 1 && s.inputs[1].shape[0] > 3) throw Unsupported("Col2Im over more than three spatial axes");
        if (s.inputs[0].dtype == DType::Bool) throw Unsupported("Col2Im of bool");
        visit<NumberTypes>(s.inputs[0].dtype, [](auto) { return 0; });
        attrs_.auto_pad = AutoPad::NotSet;
    }
    uint32_t value_inputs() const override { return 6; }
    std::unique_ptr<Prepared> prepare(const Tensor* in, TensorDesc* out) const override {
        const Shape& x = in[0].shape();
        WindowAttrs attrs = attrs_;
        attrs.kernel = sizes(in[2], "block_shape");
        const std::vector<int64_t> image = sizes(in[1], "image_shape");
        if (x.rank != 3 || image.empty() || image.size() > 3) throw BadOperand("the input " + x.str() + " must have 3 dimensions, the image 1 to 3");
        Shape y{1, 1};
        for (int64_t d : image) y.push_back(d);
        const Window w = place_window(attrs, y);
        check_size("the input", x);
        const double blocks = static_cast<double>(w.axis[0].out) * static_cast<double>(w.axis[1].out) * static_cast<double>(w.axis[2].out);
        if (x[1] % w.taps() != 0 || blocks != static_cast<double>(x[2]))
            throw BadOperand("the input " + x.str() + " does not hold the blocks of an image " + y.str());
        y[0] = x[0];
        y[1] = x[1] / w.taps();
        check_size("the output", y);
        out[0] = {in[0].dtype(), y};
        return visit<NumberTypes>(in[0].dtype(), [&](auto type) -> std::unique_ptr<Prepared> {
            using T = decltype(type);
            if constexpr (std::is_integral_v<T>) return std::make_unique<ColumnsToImage<std::make_unsigned_t<T>>>(w, y[0] * y[1]);  // sums wrap
            else return std::make_unique<ColumnsToImage<T>>(w, y[0] * y[1]);
        });
    }

  private:
    WindowAttrs attrs_;
};

}  // namespace

void register_col2im(Registry& r) {
    r.add("Col2Im", [](const NodeSpec& s) { return std::make_unique<Col2ImKernel>(s); });
}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
