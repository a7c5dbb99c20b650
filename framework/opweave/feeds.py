"""What a caller gives to a session: checked against the model's inputs, made arrays without a copy where possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opweave.dtypes import DType
from opweave.errors import InputError
from opweave.graph import Value
from opweave.types import Dim, TensorType, shape_text


def ordered(inputs: Sequence[Value], given: Mapping[str, Any] | Sequence[Any]) -> list[Any]:
    """The given values in the order of the model's inputs. Raises `InputError` for names and counts that do not fit."""
    names = [v.name for v in inputs]
    if isinstance(given, Mapping):
        unknown = [n for n in given if n not in names]
        missing = [n for n in names if n not in given]
        if unknown or missing:
            found = "; ".join(
                f"{what} {', '.join(map(repr, who))}"
                for what, who in (("unknown", unknown), ("missing", missing))
                if who
            )
            raise InputError("the inputs of a call", found, f"the model takes {_listed(inputs)}")
        return [given[n] for n in names]
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        raise InputError("the inputs of a call", f"found {type(given).__name__}", "give a dict by name, or a sequence")
    if len(given) != len(names):
        raise InputError("the inputs of a call", f"found {len(given)} values", f"the model takes {_listed(inputs)}")
    return list(given)


def converted(value: Value, given: Any) -> Any:
    """An array of the input's dtype, contiguous, on the host; containers pass as they are. Raises `InputError`.

    Takes arrays, anything with DLPack, and nested lists of numbers, which take the input's dtype. An array of another
    dtype is refused, not cast.
    """
    tensor = value.tensor
    if tensor is None:
        return given
    array = _array(value.name, tensor, given)
    _check(value.name, tensor, array)
    return array


def _array(name: str, tensor: TensorType, given: Any) -> np.ndarray[Any, Any]:
    wanted = tensor.dtype.numpy
    try:
        if isinstance(given, np.ndarray):
            array = given
        elif hasattr(given, "__dlpack__") and not isinstance(given, np.generic):
            array = _from_dlpack(given)
        elif isinstance(given, np.generic):
            array = np.asarray(given)
        else:
            array = np.asarray(given, dtype=wanted)
    except (TypeError, ValueError, OverflowError, BufferError, RuntimeError) as error:
        raise InputError(f"input {name!r} as {tensor}", f"cannot read {type(given).__name__}: {error}") from error
    if tensor.dtype is DType.STRING and array.dtype.kind in "US":
        array = array.astype(str).astype(object)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("="))
    return np.ascontiguousarray(array) if array.ndim else array


def _from_dlpack(given: Any) -> np.ndarray[Any, Any]:
    try:
        return np.from_dlpack(given)
    except (BufferError, RuntimeError, TypeError):
        if hasattr(given, "__array__"):
            return np.asarray(given)
        raise


def _check(name: str, tensor: TensorType, array: np.ndarray[Any, Any]) -> None:
    if array.dtype != tensor.dtype.numpy:
        raise InputError(f"input {name!r} as {tensor}", f"found dtype {array.dtype}", f"cast it to {tensor.dtype}")
    if tensor.shape is None:
        return
    fits = len(tensor.shape) == array.ndim and all(map(_fits, tensor.shape, array.shape))
    if not fits:
        raise InputError(
            f"input {name!r} as {tensor}",
            f"found shape {shape_text(array.shape)}",
            "give an array of the model's shape",
        )


def _fits(wanted: Dim, found: int) -> bool:
    return not isinstance(wanted, int) or wanted == found


def _listed(inputs: Sequence[Value]) -> str:
    return ", ".join(f"{v.name!r} {v.type or ''}".strip() for v in inputs) or "no inputs"
