#include "bindings/objects.h"

#include <nanobind/stl/shared_ptr.h>

namespace opweave {

std::shared_ptr<void> hold(nb::handle object) {
    object.inc_ref();
    return std::shared_ptr<void>(object.ptr(), [](void* p) {
        if (!Py_IsInitialized()) return;
        nb::gil_scoped_acquire gil;
        Py_DECREF(static_cast<PyObject*>(p));
    });
}

void set_object(Slot& slot, nb::handle object) {
    slot = Slot();
    slot.object = hold(object);
    slot.set = true;
}

void ZipMap::run(const std::vector<const Slot*>& in, const std::vector<Slot*>& out) const {
    if (in.size() != 1 || !in[0] || !in[0]->is_tensor() || in[0]->tensor.dtype() != DType::F32)
        throw BadOperand("it takes one tensor of float32");
    const Shape& shape = in[0]->tensor.shape();
    if (shape.rank > 2) throw BadOperand("its operand has the shape " + shape.str() + "; expected rows of numbers");
    const int64_t rows = shape.rank == 2 ? shape[0] : 1, columns = shape.rank ? shape[shape.rank - 1] : 1;
    if (columns != count_) throw BadOperand(std::to_string(columns) + " columns for " + std::to_string(count_) + " class labels");
    if (out.empty() || !out[0]) return;
    nb::gil_scoped_acquire gil;
    nb::object list = nb::steal(PyList_New(static_cast<Py_ssize_t>(rows)));
    if (!list.is_valid()) nb::raise_python_error();
    for (int64_t i = 0; i < rows; ++i)
        PyList_SetItem(list.ptr(), static_cast<Py_ssize_t>(i), dictionary(in[0]->tensor.as<float>() + i * columns).release().ptr());
    set_object(*out[0], list);
}

nb::object ZipMap::dictionary(const float* row) const {
    nb::object dictionary = nb::steal(PyDict_New());
    if (!dictionary.is_valid()) nb::raise_python_error();
    PyObject* labels = static_cast<PyObject*>(labels_.get());
    for (int64_t j = 0; j < count_; ++j) {
        nb::object number = nb::steal(PyFloat_FromDouble(static_cast<double>(row[j])));
        if (!number.is_valid() || PyDict_SetItem(dictionary.ptr(), PyList_GetItem(labels, static_cast<Py_ssize_t>(j)), number.ptr()))
            nb::raise_python_error();
    }
    return dictionary;
}

void bind_objects(nb::module_& m) { nb::class_<ZipMap>(m, "ZipMap").def(nb::init<nb::list>(), nb::arg("labels")); }

}  // namespace opweave
