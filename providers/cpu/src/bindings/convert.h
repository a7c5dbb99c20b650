// Crossing between Python and the core. An array crosses as (object with the buffer protocol, dtype code): the codes are
// needed because ml_dtypes arrays have no buffer protocol and come as views of unsigned integers.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

#include "core/kernel.h"

namespace opweave {

namespace nb = nanobind;

// A C-contiguous array held through the buffer protocol while this object lives. Needs the GIL to make and to drop.
class HeldBuffer {
  public:
    HeldBuffer(nb::handle array, DType dtype, bool writable);
    ~HeldBuffer();
    HeldBuffer(const HeldBuffer&) = delete;
    HeldBuffer& operator=(const HeldBuffer&) = delete;
    Tensor tensor;

  private:
    Py_buffer view_{};
};

OwnedTensor owned_tensor(nb::handle array, DType dtype);  // releases the buffer under the GIL, whoever drops it
Attrs to_attrs(nb::dict attrs);                            // values: int, float, str, lists of these, (array, code)
const char* numpy_name(DType dtype);                       // of the NumPy dtype that a tensor crosses as
nb::object new_array(const TensorDesc& desc);              // an uninitialised NumPy array; narrow types as unsigned integers

}  // namespace opweave
