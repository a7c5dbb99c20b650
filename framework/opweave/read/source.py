"""From what the user hands over to a `ModelProto` and the place of its weights."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from opweave.errors import ModelError, UsageError
from opweave.read.tensors import Home
from opweave.read.wire import WeightFile, take_weights

_MESSAGE_LIMIT = 2**31 - 1  # protobuf's own limit
_MAPPED_FROM = 1 << 20  # bytes
_FOREIGN_LIMIT = 2**31 - 100  # versions of other domains are what their makers say
_TOLERATED_NEWER = 20  # versions beyond the known ones that are tried, with a warning


def load_model(source: str | os.PathLike[str] | bytes | onnx.ModelProto) -> tuple[onnx.ModelProto, Home]:
    """The model and where the data of its tensors lies; its versions are sane and it has a graph."""
    if isinstance(source, onnx.ModelProto):
        model, where, home = source, "the model", Home(Path())
    elif isinstance(source, (bytes, bytearray, memoryview)):
        where = "the model"
        model, home = _parse(memoryview(bytes(source)), None, where, Path())
    elif isinstance(source, (str, os.PathLike)):
        path = Path(source)
        where = str(path)
        model, home = _parse(*_open_file(path), where, path.parent)
    else:
        raise UsageError("a model", f"found {type(source).__name__}", "give a path, bytes or an onnx.ModelProto")
    _check_model(model, where)
    return model, home


def _open_file(path: Path) -> tuple[memoryview, WeightFile | None]:
    """The bytes of the file. A large one is mapped, for as long as its weights are looked for, and kept open for them."""
    asked = f"read the model {path}"
    try:
        if path.is_dir():
            raise ModelError(asked, "it is a directory", "give the path of the .onnx file")
        if not path.exists():
            raise ModelError(asked, "there is no such file", "check the path")
        if not path.is_file():
            raise ModelError(asked, "it is not a regular file", "give the path of the .onnx file")
        if path.stat().st_size < _MAPPED_FROM:
            return memoryview(path.read_bytes()), None
        file = WeightFile(path)
        return file.map(), file
    except (OSError, ValueError) as error:
        raise ModelError(asked, str(error), "check the path and its permissions") from error


def _parse(data: memoryview, file: WeightFile | None, where: str, folder: Path) -> tuple[onnx.ModelProto, Home]:
    if not data:
        raise ModelError(f"read {where}", "it is empty", "export or download the model again")
    message, payloads = take_weights(data, file)
    if len(message) > _MESSAGE_LIMIT:
        found = f"{len(message)} bytes besides the weights are more than protobuf reads"
        raise ModelError(f"read {where}", found, "store weights as external data")
    try:
        return onnx.ModelProto.FromString(bytes(message)), Home(folder, payloads)
    except (DecodeError, RecursionError) as error:
        raise ModelError(
            f"read {where}", "it is not an ONNX model, or is damaged", "export or download the model again"
        ) from error


def _check_model(model: onnx.ModelProto, where: str) -> None:
    asked = f"read {where}"
    if not model.HasField("graph"):
        raise ModelError(asked, "it has no graph", "give an ONNX model")
    _check_version(asked, "IR", model.ir_version, int(onnx.IR_VERSION))
    imports = [*model.opset_import, *(o for function in model.functions for o in function.opset_import)]
    for opset in imports:
        known = opset.domain in ("", "ai.onnx")
        newest = onnx.defs.onnx_opset_version() if known else _FOREIGN_LIMIT
        _check_version(asked, "operator set", opset.version, newest)


def _check_version(asked: str, what: str, version: int, newest: int) -> None:
    if version < 0 or version > newest + _TOLERATED_NEWER:
        raise ModelError(asked, f"{what} version {version}", f"versions up to {newest} are known")
    if version > newest:
        warnings.warn(f"{asked}: {what} version {version} is newer than {newest}, the newest known", stacklevel=4)
