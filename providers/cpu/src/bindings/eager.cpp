// One operator, at once: what tests and constant folding call.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/convert.h"

namespace opweave {

namespace {

// inputs: None or (array, dtype code); outputs: dtype codes, 0 for an omitted one. Every input counts as constant when
// `constant` is set (so that weights get packed), as unknown data otherwise.
nb::list eager(const std::string& op, const std::string& domain, nb::dict attrs, nb::list inputs,
               const std::vector<int>& outputs, int threads, bool constant) {
    NodeSpec spec{op, domain, to_attrs(attrs), {}, {}};
    std::vector<std::unique_ptr<HeldBuffer>> held;
    std::vector<Tensor> in;
    for (nb::handle h : inputs) {
        if (!h.is_none()) held.push_back(std::make_unique<HeldBuffer>(h[0], static_cast<DType>(nb::cast<int>(h[1])), false));
        in.push_back(h.is_none() ? Tensor{} : held.back()->tensor);
    }
    for (Tensor& t : in) spec.inputs.push_back({t.dtype(), t.shape().rank, t.shape(), constant && t.present() ? &t : nullptr, ""});
    for (int code : outputs) spec.outputs.push_back(static_cast<DType>(code));
    auto kernel = registry().make(spec);
    std::vector<TensorDesc> descs(outputs.size());
    auto prepared = kernel->prepare(in.data(), descs.data());
    nb::list result;
    std::vector<Tensor> out;
    for (const TensorDesc& desc : descs) {
        if (desc.dtype == DType::Undefined) {
            out.push_back({});
            result.append(nb::none());
            continue;
        }
        nb::object array = new_array(desc);
        held.push_back(std::make_unique<HeldBuffer>(array, desc.dtype, true));
        out.push_back({desc, held.back()->tensor.data});
        result.append(nb::make_tuple(array, static_cast<int>(desc.dtype)));
    }
    auto workspace = aligned_buffer(prepared->workspace);
    {
        nb::gil_scoped_release release;
        prepared->run({threads, workspace.get()}, in.data(), out.data());
    }
    return result;
}

}  // namespace

void bind_eager(nb::module_& m) {
    static nb::exception<Unsupported> unsupported(m, "Unsupported", PyExc_NotImplementedError);
    static nb::exception<BadOperand> bad_operand(m, "BadOperand", PyExc_ValueError);
    m.def("eager", &eager, nb::arg("op"), nb::arg("domain"), nb::arg("attrs"), nb::arg("inputs"), nb::arg("outputs"),
          nb::arg("threads") = 1, nb::arg("constant") = false);
}

}  // namespace opweave
