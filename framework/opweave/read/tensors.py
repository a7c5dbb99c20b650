"""From a `TensorProto` to a constant: sizes are checked against the data that is there before anything is allocated."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from opweave.dtypes import DType
from opweave.errors import ModelError
from opweave.graph import Array, Constant
from opweave.read.wire import FileSpan, Payload, Payloads
from opweave.types import TensorType

_DENSE_LIMIT = 1 << 30  # bytes; a sparse tensor's declared shape is all that its dense form would be allocated by
_BITS = {DType.UINT4: 4, DType.INT4: 4, DType.FLOAT4E2M1: 4, DType.UINT2: 2, DType.INT2: 2}
_BITS |= {DType.FLOAT6E2M3: 6, DType.FLOAT6E3M2: 6}
_SHARING = frozenset(dtype for dtype, bits in _BITS.items() if 8 % bits == 0)  # several in one entry of int32_data
_FIELDS = {
    DType.FLOAT32: "float_data",
    DType.COMPLEX64: "float_data",
    DType.FLOAT64: "double_data",
    DType.COMPLEX128: "double_data",
    DType.INT64: "int64_data",
    DType.UINT32: "uint64_data",
    DType.UINT64: "uint64_data",
    DType.STRING: "string_data",
}
_FIELD_DTYPES = {"float_data": np.float32, "double_data": np.float64, "int64_data": np.int64, "uint64_data": np.uint64}


@dataclass(frozen=True)
class Home:
    """Where the data of tensors lies: the folder of external data, and the weights taken out of the model's bytes."""

    folder: Path
    payloads: Payloads | None = None

    def raw(self, tensor: onnx.TensorProto) -> Payload:
        """The bytes of `raw_data`, wherever they are."""
        raw: bytes = tensor.raw_data
        return raw if self.payloads is None else self.payloads.resolve(raw)


def tensor_constant(tensor: onnx.TensorProto, home: Home) -> tuple[Constant, TensorType]:
    """The constant, its data not yet touched, and its type. `home` says where data lies that is not in the message."""
    dtype, shape = tensor_dtype(tensor), _shape(tensor)
    count = math.prod(shape)
    load: Callable[[], Array]
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        load = _external(tensor, dtype, shape, home.folder)
    elif tensor.HasField("raw_data"):
        raw = home.raw(tensor)
        _expect(tensor, len(raw), _packed_bytes(dtype, count), "bytes of raw_data")
        load = functools.partial(_from_raw, raw, dtype, shape)
    else:
        field = _FIELDS.get(dtype, "int32_data")
        _expect(tensor, len(getattr(tensor, field)), _field_count(dtype, count), f"elements of {field}")
        load = functools.partial(_from_field, tensor, field, dtype, shape)
    return Constant(load, count * dtype.itemsize), TensorType(dtype, shape)


def sparse_constant(sparse: onnx.SparseTensorProto, home: Home) -> tuple[Constant, TensorType]:
    """A sparse tensor as a dense constant."""
    values, type_ = tensor_constant(sparse.values, home)
    indices, _ = tensor_constant(sparse.indices, home)
    name, shape = sparse.values.name, tuple(sparse.dims)
    _check_shape(name, shape)
    if math.prod(shape) * max(type_.dtype.itemsize, 8) > _DENSE_LIMIT:
        raise _wrong(name, f"the dense form of {shape} is too large", "sparse tensors are read as dense ones")
    at = _positions(name, indices.array, values.array.size, shape)
    dense = functools.partial(_dense, values, at, type_.dtype, shape)
    return Constant(dense, math.prod(shape) * type_.dtype.itemsize), TensorType(type_.dtype, shape)


def tensor_dtype(tensor: onnx.TensorProto) -> DType:
    """The element type, known and defined."""
    try:
        dtype = DType(tensor.data_type)
    except ValueError:
        dtype = DType.UNDEFINED
    if dtype is DType.UNDEFINED:
        raise _wrong(tensor.name, f"element type {tensor.data_type}", "the model is damaged or newer than known")
    return dtype


def _shape(tensor: onnx.TensorProto) -> tuple[int, ...]:
    shape = tuple(tensor.dims)
    _check_shape(tensor.name, shape)
    if tensor.HasField("segment"):
        raise _wrong(tensor.name, "data in segments", "store the tensor in one piece")
    return shape


def _check_shape(name: str, shape: Sequence[int]) -> None:
    if any(d < 0 for d in shape):
        raise _wrong(name, f"a negative dimension in {tuple(shape)}", "the model is damaged")
    if len(shape) > 32 or math.prod(d for d in shape if d) >= 2**60:
        raise _wrong(name, f"{len(shape)} dimensions of {math.prod(shape)} elements", "the model is damaged")


def _expect(tensor: onnx.TensorProto, found: int, expected: int, what: str) -> None:
    if found != expected:
        raise _wrong(tensor.name, f"{found} {what} where {tuple(tensor.dims)} needs {expected}", "the model is damaged")


def _wrong(name: str, found: str, hint: str) -> ModelError:
    return ModelError(f"read the tensor {name or '(unnamed)'}", found, hint)


def _packed_bytes(dtype: DType, count: int) -> int:
    bits = _BITS.get(dtype)
    return (count * bits + 7) // 8 if bits else count * dtype.itemsize


def _field_count(dtype: DType, count: int) -> int:
    if dtype in (DType.COMPLEX64, DType.COMPLEX128):
        return 2 * count
    return _packed_bytes(dtype, count) if dtype in _SHARING else count


def _from_raw(raw: Payload, dtype: DType, shape: tuple[int, ...]) -> Array:
    array = decode(raw.read() if isinstance(raw, FileSpan) else np.frombuffer(raw, np.uint8), dtype, shape)
    return array if array.flags.aligned else array.copy()


def decode(data: Array, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Elements from the bytes of `raw_data` or of an external file (little endian, narrow types packed)."""
    array: Array
    if dtype in _BITS:
        array = _unpack(data, dtype, math.prod(shape))
    else:
        array = data != 0 if dtype is DType.BOOL else data.view(dtype.numpy)
    return array.reshape(shape)


def _unpack(data: Array, dtype: DType, count: int) -> Array:
    bits = _BITS[dtype]
    if 8 % bits:
        return _unpack_across(data, bits, count).view(dtype.numpy)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes: Array = ((data[:, None] >> shifts) & ((1 << bits) - 1)).reshape(-1)[:count].astype(np.uint8)
    if dtype in (DType.INT4, DType.INT2):
        codes = (codes << (8 - bits)).view(np.int8) >> (8 - bits)
    unpacked: Array = codes.view(dtype.numpy)
    return unpacked


def _unpack_across(data: Array, bits: int, count: int) -> Array:
    """Codes that cross the bounds of bytes, lowest bit first."""
    stream = np.unpackbits(data, bitorder="little")[: count * bits].reshape(count, bits)
    return np.packbits(stream, axis=1, bitorder="little").reshape(count)


def _from_field(tensor: onnx.TensorProto, field: str, dtype: DType, shape: tuple[int, ...]) -> Array:
    data = getattr(tensor, field)
    if dtype is DType.STRING:
        strings = [s.decode("utf-8", "surrogateescape") for s in data]
        return np.array(strings, dtype=object).reshape(shape)
    array: Array
    if field != "int32_data":
        array = np.array(data, _FIELD_DTYPES[field])
        array = array.view(dtype.numpy) if "COMPLEX" in dtype.name else array.astype(dtype.numpy)
        return array.reshape(shape)
    codes = np.array(data, np.int32)
    if dtype in _SHARING:
        array = _unpack(codes.astype(np.uint8), dtype, math.prod(shape))
    else:
        array = codes != 0 if dtype is DType.BOOL else codes.astype(f"u{dtype.itemsize}").view(dtype.numpy)
    return array.reshape(shape)


def _external(tensor: onnx.TensorProto, dtype: DType, shape: tuple[int, ...], folder: Path) -> Callable[[], Array]:
    entries = {e.key: e.value for e in tensor.external_data}
    if dtype is DType.STRING:
        raise _wrong(tensor.name, "strings as external data", "ONNX does not allow it")
    path = _external_path(tensor.name, entries.get("location", ""), folder)
    size = path.stat().st_size
    offset = _number(tensor.name, "offset", entries.get("offset", "0"))
    needed = _packed_bytes(dtype, math.prod(shape))
    length = _number(tensor.name, "length", entries.get("length", str(needed)))
    _expect(tensor, length, needed, "bytes of external data")
    if offset + needed > size:
        found = f"bytes {offset} to {offset + needed} of {path.name}, which has {size}"
        raise _wrong(tensor.name, found, "the file is damaged or belongs to another model")
    return functools.partial(_map, path, offset, needed, dtype, shape)


def _external_path(name: str, location: str, folder: Path) -> Path:
    inside = "external data must lie in the model's folder"
    if not location or "\0" in location or os.path.isabs(location) or ".." in Path(location).parts:
        raise _wrong(name, f"external data at {location!r}", inside)
    root, path = folder.resolve(), (folder / location).resolve()
    if not path.is_relative_to(root):
        raise _wrong(name, f"external data at {location!r}, which links to {path}", inside)
    try:
        if not path.is_file():
            raise _wrong(name, f"no file {location!r} in {root}", "put the model's external data beside it")
    except (OSError, ValueError) as error:
        raise _wrong(name, f"external data at {location[:100]!r}: {error}", inside) from error
    return path


def _number(name: str, what: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise _wrong(name, f"{what} {text[:40]!r} of its external data", "the model is damaged")
    return int(text)


def _map(path: Path, offset: int, nbytes: int, dtype: DType, shape: tuple[int, ...]) -> Array:
    if nbytes == 0:
        return np.zeros(shape, dtype.numpy)
    data: Any = np.memmap(path, np.uint8, "r", offset, (nbytes,))
    return decode(data.view(np.ndarray), dtype, shape)


def _positions(name: str, where: Array, count: int, shape: tuple[int, ...]) -> Array:
    """Where the values stand in the flat dense tensor."""
    if where.dtype != np.int64 or where.ndim not in (1, 2) or len(where) != count:
        raise _wrong(name, f"{where.shape} indices of {count} values", "the model is damaged")
    if where.ndim == 2 and where.shape[1] != len(shape):
        raise _wrong(name, f"indices of {where.shape[1]} dimensions in {shape}", "the model is damaged")
    limits = np.array(shape if where.ndim == 2 else [math.prod(shape)], np.int64)
    if ((where < 0) | (where >= limits)).any():
        raise _wrong(name, f"indices outside {shape}", "the model is damaged")
    if where.ndim == 1:
        return where
    steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return where @ np.array(steps, np.int64)


def _dense(values: Constant, at: Array, dtype: DType, shape: tuple[int, ...]) -> Array:
    count = math.prod(shape)
    flat = np.full(count, "", object) if dtype is DType.STRING else np.zeros(count, dtype.numpy)
    flat[at] = values.array.reshape(-1)
    return flat.reshape(shape)
