// The Python module `_core`. `_core.pyi` is its typed face.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/convert.h"

namespace opweave {
void bind_eager(nb::module_& m);
void bind_objects(nb::module_& m);
void bind_program(nb::module_& m);
}

NB_MODULE(_core, m) {
    using namespace opweave;
    m.def("operators", [] { return registry().operators(); }, "Native kernels as (domain, operator).");
    m.def("current_isa", &current_isa);
    m.def("usable_isas", &usable_isas);
    m.def("select_isa", &select_isa, nanobind::arg("name"));
    m.def("usable_threads", &usable_threads);
    bind_eager(m);
    bind_objects(m);
    bind_program(m);
}
