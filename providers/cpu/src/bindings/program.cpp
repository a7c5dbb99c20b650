// The Python face of a program: building it from plain lists, and calling it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "bindings/convert.h"
#include "bindings/objects.h"
#include "core/program.h"

namespace opweave {

namespace {

nb::object object_of(const Slot& slot) { return nb::borrow(static_cast<PyObject*>(slot.object.get())); }

// Memory that a NumPy array views; read-only where the program may use it again.
struct Memory {
    std::shared_ptr<const void> owner;
    void* data;
    size_t nbytes;
    bool writable;
};

int memory_buffer(PyObject* self, Py_buffer* view, int flags) {
    Memory* memory = nb::inst_ptr<Memory>(nb::handle(self));
    return PyBuffer_FillInfo(view, self, memory->data, static_cast<Py_ssize_t>(memory->nbytes), !memory->writable, flags);
}
PyType_Slot memory_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(memory_buffer)}, {0, nullptr}};

// NumPy's names that every call uses, looked up once.
struct Numpy {
    nb::object ndarray, empty, contiguous, failure;
    nb::object dtypes[32];
    static const Numpy& get() {
        static const Numpy* one = new Numpy;
        return *one;
    }
    nb::handle dtype(DType code) const { return dtypes[static_cast<size_t>(code)]; }

  private:
    Numpy() {
        nb::module_ numpy = nb::module_::import_("numpy");
        ndarray = numpy.attr("ndarray");
        empty = numpy.attr("empty");
        contiguous = numpy.attr("ascontiguousarray");
        for (int code = 1; code <= 26; ++code)
            if (code != static_cast<int>(DType::Str)) dtypes[code] = numpy.attr("dtype")(numpy_name(static_cast<DType>(code)));
    }
};

nb::object shape_tuple(const Shape& shape) {
    nb::object tuple = nb::steal(PyTuple_New(shape.rank));
    for (int i = 0; i < shape.rank; ++i) PyTuple_SetItem(tuple.ptr(), i, PyLong_FromLongLong(shape[i]));
    return tuple;
}

nb::object fresh_array(const TensorDesc& desc) { return Numpy::get().empty(shape_tuple(desc.shape), Numpy::get().dtype(desc.dtype)); }

nb::object array_over(const Slot& slot, bool writable) {
    const TensorDesc& desc = slot.tensor.desc;
    nb::object memory = nb::cast(Memory{slot.owner, slot.tensor.data, desc.nbytes(), writable});
    return Numpy::get().ndarray(shape_tuple(desc.shape), Numpy::get().dtype(desc.dtype), memory);
}

nb::object array_copy(const Slot& slot) {
    nb::object array = fresh_array(slot.tensor.desc);
    HeldBuffer held(array, slot.tensor.dtype(), true);
    if (size_t nbytes = slot.tensor.desc.nbytes()) std::memcpy(held.tensor.data, slot.tensor.data, nbytes);
    return array;
}

void set_tensor(Slot& slot, nb::handle array, DType dtype) {
    auto [tensor, owner] = owned_tensor(array, dtype);
    slot.tensor = tensor;
    slot.owner = owner;
    slot.object = nullptr;
    slot.place = Place::Owned;
    slot.set = true;
}

// callable(list of (array, code) | (object, 0) | None) -> list of the same for the outputs, None where there is none.
class PythonCallable final : public Callable {
  public:
    explicit PythonCallable(nb::handle function) : function_(hold(function)) {}

    void run(const std::vector<const Slot*>& in, const std::vector<Slot*>& out) const override {
        nb::gil_scoped_acquire gil;
        nb::list operands;
        for (const Slot* slot : in) operands.append(operand(slot));
        nb::object results = nb::handle(static_cast<PyObject*>(function_.get()))(operands);
        for (size_t i = 0; i < out.size(); ++i) {
            if (!out[i]) continue;
            nb::object result = results[i];
            auto code = static_cast<DType>(nb::cast<int>(result[1]));
            if (code == DType::Undefined) set_object(*out[i], result[0]);
            else set_tensor(*out[i], result[0], code);
            out[i]->place = Place::Borrowed;  // Python may hold the array too: whoever hands it on copies it
        }
    }

  private:
    static nb::object operand(const Slot* slot) {
        if (!slot || !slot->set) return nb::none();
        if (slot->object) return nb::make_tuple(object_of(*slot), 0);
        bool shared = slot->place == Place::Owned && slot->owner;
        return nb::make_tuple(shared ? array_over(*slot, false) : array_copy(*slot), static_cast<int>(slot->tensor.dtype()));
    }
    std::shared_ptr<void> function_;
};

// What the core brings itself, or a function of Python's.
std::shared_ptr<Callable> callable_of(nb::object object) {
    if (object.is_none()) return nullptr;
    std::shared_ptr<ZipMap> zip_map;
    if (nb::try_cast(object, zip_map)) return zip_map;
    return std::make_shared<PythonCallable>(object);
}

ValueInfo value_of(nb::handle h) {  // (code, shape | None, constant | None, key)
    ValueInfo value;
    value.desc.dtype = static_cast<DType>(nb::cast<int>(h[0]));
    value.key = nb::cast<std::string>(nb::object(h[3]));
    nb::object shape = h[1], constant = h[2];
    if (!shape.is_none()) {
        value.ranked = true;
        for (nb::handle d : shape) value.desc.shape.push_back(nb::cast<int64_t>(d));
    }
    if (constant.is_none()) return value;
    value.constant = true;
    bool object = value.desc.dtype == DType::Undefined || value.desc.dtype == DType::Str;
    if (object) set_object(value.initial, constant);
    else set_tensor(value.initial, constant, value.desc.dtype);
    return value;
}

std::vector<int> ints_of(nb::handle h) {
    std::vector<int> out;
    for (nb::handle item : h) out.push_back(nb::cast<int>(item));
    return out;
}

Block block_of(nb::handle h);

// (kind, name, op, domain, inputs, outputs, attrs, callable | None, blocks, scan | None)
Instruction instruction_of(nb::handle h) {
    Instruction one;
    one.kind = static_cast<Kind>(nb::cast<int>(h[0]));
    one.name = nb::cast<std::string>(nb::object(h[1]));
    one.op = nb::cast<std::string>(nb::object(h[2]));
    one.domain = nb::cast<std::string>(nb::object(h[3]));
    one.in = ints_of(h[4]);
    one.out = ints_of(h[5]);
    one.attrs = to_attrs(nb::cast<nb::dict>(nb::object(h[6])));
    one.callable = callable_of(nb::object(h[7]));
    for (nb::handle block : nb::object(h[8])) one.blocks.push_back(block_of(block));
    if (nb::object scan = h[9]; !scan.is_none()) {
        one.scan.scanned = nb::cast<int>(scan[0]);
        std::vector<int64_t>* lists[] = {&one.scan.in_axes, &one.scan.out_axes, &one.scan.in_reverse, &one.scan.out_reverse};
        for (int i = 0; i < 4; ++i) *lists[i] = nb::cast<std::vector<int64_t>>(nb::object(scan[i + 1]));
    }
    return one;
}

Block block_of(nb::handle h) {
    Block block;
    block.inputs = ints_of(h[0]);
    block.outputs = ints_of(h[1]);
    for (nb::handle item : nb::object(h[2])) block.code.push_back(instruction_of(item));
    return block;
}

[[noreturn]] void raise_error(const char* name, const std::string& asked, const NodeFailure& e) {
    nb::object type = nb::module_::import_("opweave.errors").attr(name);
    nb::object error = type(asked, e.what(), nb::arg("node") = e.node, nb::arg("op") = e.op);
    PyErr_SetObject(type.ptr(), error.ptr());
    nb::raise_python_error();
}
[[noreturn]] void raise_failure(const NodeFailure& e) { raise_error("ExecutionError", "running " + e.op + " on (" + e.operands + ")", e); }

class PyProgram {
  public:
    PyProgram(nb::list values, nb::tuple block, int threads, bool trusting)
        : program_(built(values, block, threads, trusting)) {}

    nb::list call(nb::sequence arrays) { return call_with(arrays, nullptr); }

    nb::tuple profile(nb::sequence arrays) {
        std::vector<ProfileRow> rows;
        nb::list outputs = call_with(arrays, &rows);
        nb::list table;
        for (const ProfileRow& row : rows) {
            const Instruction& i = *row.instruction;
            table.append(nb::make_tuple(i.name, i.operator_name(), row.seconds, !i.leaves_core(), row.flops, row.nbytes, row.algorithm));
        }
        return nb::make_tuple(outputs, table);
    }

    // (slot, nbytes, first, last, alias, in-place candidates) of every value whose memory can be planned.
    nb::list lives() const {
        nb::list list;
        for (size_t i = 0; i < program_.values().size(); ++i) {
            const ValueInfo& v = program_.values()[i];
            if (v.planned)
                list.append(nb::make_tuple(i, v.alias >= 0 ? 0 : v.desc.nbytes(), v.first, v.last, v.alias, v.inplace));
        }
        return list;
    }
    void lay_out(const std::vector<int64_t>& offsets, size_t nbytes) { program_.lay_out(offsets, nbytes); }
    std::pair<size_t, size_t> memory() const { return {program_.arena_nbytes(), program_.workspace_nbytes()}; }

    // (name, operator) of the instructions that leave the core.
    nb::list calls() const {
        nb::list list;
        list_calls(program_.main(), list);
        return list;
    }

  private:
    static Program built(nb::list values, nb::tuple block, int threads, bool trusting) {
        try {
            return Program(values_of(values), block_of(block), threads, trusting);
        } catch (const NodeFailure& e) {
            raise_error("ModelError", "compile " + e.op, e);
        }
    }
    static std::vector<ValueInfo> values_of(nb::list values) {
        std::vector<ValueInfo> out;
        for (nb::handle h : values) out.push_back(value_of(h));
        return out;
    }
    static void list_calls(const Block& block, nb::list& list) {
        for (const Instruction& i : block.code) {
            if (i.leaves_core()) list.append(nb::make_tuple(i.name, i.operator_name()));
            for (const Block& inner : i.blocks) list_calls(inner, list);
        }
    }

    void bind_input(Run& run, int index, nb::handle array) const {
        const ValueInfo& info = program_.values()[static_cast<size_t>(index)];
        Slot& slot = run.slots[static_cast<size_t>(index)];
        if (info.desc.dtype == DType::Undefined || info.desc.dtype == DType::Str) return set_object(slot, array);
        bind_array(slot, array, info.desc.dtype);
        slot.place = Place::Borrowed;
        if (info.known && slot.tensor.shape() != info.desc.shape)
            throw std::invalid_argument("an input has the shape " + slot.tensor.shape().str() + ", the program is for " + info.desc.shape.str());
    }
    static void bind_array(Slot& slot, nb::handle array, DType dtype) {
        if (PyObject_CheckBuffer(array.ptr())) {
            Py_buffer view;
            if (PyObject_GetBuffer(array.ptr(), &view, PyBUF_ND) == 0) {
                PyBuffer_Release(&view);
                return set_tensor(slot, array, dtype);
            }
            PyErr_Clear();
        }
        set_tensor(slot, Numpy::get().contiguous(array).attr("reshape")(array.attr("shape")), dtype);
    }

    std::unique_ptr<Run> acquired() {
        try {
            return program_.acquire();
        } catch (const OutOfMemory& e) {
            raise_failure({"", "a program", std::to_string(program_.arena_nbytes()) + " bytes of arena", e.what()});
        }
    }

    nb::object bind_output(Run& run, int index) const {
        const ValueInfo& info = program_.values()[static_cast<size_t>(index)];
        if (!info.direct) return nb::none();
        nb::object array = fresh_array(info.desc);
        Slot& slot = run.slots[static_cast<size_t>(index)];
        set_tensor(slot, array, info.desc.dtype);
        slot.place = Place::Output;
        return array;
    }

    nb::list call_with(nb::sequence arrays, std::vector<ProfileRow>* profile) {
        const Block& main = program_.main();
        if (nb::len(arrays) != main.inputs.size())
            throw std::invalid_argument("the program takes " + std::to_string(main.inputs.size()) + " inputs");
        auto run = acquired();
        run->profile = profile;
        for (size_t i = 0; i < main.inputs.size(); ++i) bind_input(*run, main.inputs[i], nb::object(arrays[i]));
        std::vector<nb::object> direct;
        for (int slot : main.outputs) direct.push_back(bind_output(*run, slot));
        try {
            nb::gil_scoped_release unlocked;
            program_.execute(*run);
        } catch (const NodeFailure& e) {
            raise_failure(e);
        }
        nb::list outputs;
        for (size_t i = 0; i < direct.size(); ++i)
            outputs.append(direct[i].is_none() ? result(*run, i) : direct[i]);
        program_.release(std::move(run));
        return outputs;
    }

    // The i-th output. Inputs, constants and values that another output or an object may also show are copied.
    nb::object result(const Run& run, size_t i) const {
        const Slot& slot = run.slots[static_cast<size_t>(program_.main().outputs[i])];
        if (!slot.set) return nb::none();
        if (slot.object) return object_of(slot);
        bool own = slot.place == Place::Owned && slot.owner.use_count() == 1;
        return own ? array_over(slot, true) : array_copy(slot);
    }

    Program program_;
};

}  // namespace

void bind_program(nb::module_& m) {
    static nb::exception<ShapeSurprise> surprise(m, "ShapeSurprise", PyExc_RuntimeError);
    nb::class_<Memory>(m, "Memory", nb::type_slots(memory_slots));
    nb::class_<PyProgram>(m, "Program")
        .def(nb::init<nb::list, nb::tuple, int, bool>(), nb::arg("values"), nb::arg("block"), nb::arg("threads"),
             nb::arg("trusting") = true)
        .def("call", &PyProgram::call, nb::arg("arrays"))
        .def("profile", &PyProgram::profile, nb::arg("arrays"))
        .def("lives", &PyProgram::lives)
        .def("lay_out", &PyProgram::lay_out, nb::arg("offsets"), nb::arg("nbytes"))
        .def("memory", &PyProgram::memory)
        .def("calls", &PyProgram::calls);
    m.def("memory_limit", &memory_limit);
    m.def("set_memory_limit", &set_memory_limit, nb::arg("nbytes"));
    m.def("trim_memory", &trim_memory);
}

}  // namespace opweave
