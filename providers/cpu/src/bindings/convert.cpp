#include "bindings/convert.h"

namespace opweave {

HeldBuffer::HeldBuffer(nb::handle array, DType dtype, bool writable) {
    if (PyObject_GetBuffer(array.ptr(), &view_, writable ? PyBUF_ND | PyBUF_WRITABLE : PyBUF_ND) != 0) nb::raise_python_error();
    tensor.desc.dtype = dtype;
    if (view_.ndim > kMaxRank || static_cast<size_t>(view_.itemsize) != size_of(dtype)) {
        PyBuffer_Release(&view_);
        throw std::invalid_argument(std::string("array does not fit the type ") + name_of(dtype));
    }
    for (int i = 0; i < view_.ndim; ++i) tensor.desc.shape.push_back(view_.shape[i]);
    tensor.data = view_.buf;
}
HeldBuffer::~HeldBuffer() { PyBuffer_Release(&view_); }

OwnedTensor owned_tensor(nb::handle array, DType dtype) {
    auto held = std::shared_ptr<HeldBuffer>(new HeldBuffer(array, dtype, false), [](HeldBuffer* p) {
        if (!Py_IsInitialized()) return;
        nb::gil_scoped_acquire gil;
        delete p;
    });
    return {held->tensor, held};
}

namespace {
template <class T> std::vector<T> list_of(nb::handle h) {
    std::vector<T> out;
    for (nb::handle item : h) out.push_back(nb::cast<T>(item));
    return out;
}
std::string text_of(nb::handle h) {
    Py_ssize_t n = 0;
    const char* s = PyUnicode_AsUTF8AndSize(h.ptr(), &n);
    if (!s) nb::raise_python_error();
    return std::string(s, static_cast<size_t>(n));
}
Attrs::Value to_value(nb::handle h) {
    PyObject* p = h.ptr();
    if (PyLong_Check(p)) return nb::cast<int64_t>(h);
    if (PyFloat_Check(p)) return nb::cast<double>(h);
    if (PyUnicode_Check(p)) return text_of(h);
    if (PyTuple_Check(p)) return owned_tensor(h[0], static_cast<DType>(nb::cast<int>(h[1])));
    if (!PyList_Check(p)) throw std::invalid_argument("an attribute has a type the core does not know");
    if (PyList_GET_SIZE(p) == 0 || PyLong_Check(PyList_GET_ITEM(p, 0))) return list_of<int64_t>(h);
    if (PyFloat_Check(PyList_GET_ITEM(p, 0))) return list_of<double>(h);
    std::vector<std::string> texts;
    for (nb::handle item : h) texts.push_back(text_of(item));
    return texts;
}
}  // namespace

const char* numpy_name(DType dtype) {
    switch (dtype) {
        case DType::BF16: return "uint16";
        case DType::U8: case DType::I8: case DType::Bool: case DType::C64: case DType::C128: break;
        default:
            if (size_of(dtype) == 1) return "uint8";
    }
    if (dtype == DType::C64) return "complex64";
    if (dtype == DType::C128) return "complex128";
    return name_of(dtype);
}

Attrs to_attrs(nb::dict attrs) {
    Attrs out;
    for (auto [key, value] : attrs) out.values[text_of(key)] = to_value(value);
    return out;
}

nb::object new_array(const TensorDesc& desc) {
    nb::list shape;
    for (int64_t d : desc.shape) shape.append(d);
    return nb::module_::import_("numpy").attr("empty")(nb::tuple(shape), numpy_name(desc.dtype));
}

}  // namespace opweave
