"""Element types, numbered as ONNX numbers them (TensorProto.DataType)."""

from __future__ import annotations

import enum
import functools
from typing import Any

import numpy as np

from opweave.errors import UsageError


class DType(enum.IntEnum):
    """An element type. Types narrower than a byte take one byte an element in memory, as in `ml_dtypes`."""

    UNDEFINED = 0
    FLOAT32 = 1
    UINT8 = 2
    INT8 = 3
    UINT16 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    STRING = 8
    BOOL = 9
    FLOAT16 = 10
    FLOAT64 = 11
    UINT32 = 12
    UINT64 = 13
    COMPLEX64 = 14
    COMPLEX128 = 15
    BFLOAT16 = 16
    FLOAT8E4M3FN = 17
    FLOAT8E4M3FNUZ = 18
    FLOAT8E5M2 = 19
    FLOAT8E5M2FNUZ = 20
    UINT4 = 21
    INT4 = 22
    FLOAT4E2M1 = 23
    FLOAT8E8M0 = 24
    UINT2 = 25
    INT2 = 26
    FLOAT6E2M3 = 27
    FLOAT6E3M2 = 28

    def __str__(self) -> str:
        return self.name.lower()

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype (`object` for strings)."""
        return _numpy_of(int(self))

    @property
    def itemsize(self) -> int:
        """Bytes of an element in memory; 0 for strings."""
        return 0 if self is DType.STRING else self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        return "FLOAT" in self.name

    @property
    def is_extension(self) -> bool:
        """NumPy does not know the type by itself: `ml_dtypes` brings it, and the buffer protocol refuses it."""
        return self.name in _EXTENSIONS

    @classmethod
    def of(cls, dtype: Any) -> DType:
        """From a DType, a NumPy dtype, or a name such as 'float32'."""
        if isinstance(dtype, DType):
            return dtype
        name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
        if (not isinstance(dtype, str) and np.dtype(dtype).kind in "OUST") or name == "str":
            return cls.STRING
        found = _BY_NAME.get(name.replace("_", "").lower())
        if found is None:
            raise UsageError(
                f"element type {name!r}", "ONNX has no such type", "use one of " + ", ".join(map(str, cls))
            )
        return found


_EXTENSIONS = {
    "BFLOAT16": "bfloat16",
    "FLOAT8E4M3FN": "float8_e4m3fn",
    "FLOAT8E4M3FNUZ": "float8_e4m3fnuz",
    "FLOAT8E5M2": "float8_e5m2",
    "FLOAT8E5M2FNUZ": "float8_e5m2fnuz",
    "UINT4": "uint4",
    "INT4": "int4",
    "FLOAT4E2M1": "float4_e2m1fn",
    "FLOAT8E8M0": "float8_e8m0fnu",
    "UINT2": "uint2",
    "INT2": "int2",
    "FLOAT6E2M3": "float6_e2m3fn",
    "FLOAT6E3M2": "float6_e3m2fn",
}
_BY_NAME = {str(d): d for d in DType} | {v.replace("_", ""): DType[k] for k, v in _EXTENSIONS.items()}
_BY_NAME |= {"float": DType.FLOAT32, "double": DType.FLOAT64, "half": DType.FLOAT16}


@functools.cache
def _numpy_of(code: int) -> np.dtype[Any]:
    dtype = DType(code)
    if dtype is DType.STRING:
        return np.dtype(object)
    if dtype.name in _EXTENSIONS:
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _EXTENSIONS[dtype.name]))
        return found
    if dtype is DType.UNDEFINED:
        raise UsageError("the NumPy dtype of an undefined element type", "the type is not known")
    return np.dtype(str(dtype))
