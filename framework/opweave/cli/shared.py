"""Options and inputs that `plan` and `run` have in common."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opweave.dtypes import DType
from opweave.errors import OpweaveError, UsageError
from opweave.types import Dim, TensorType, Type

if TYPE_CHECKING:
    from opweave.session import Session

UNKNOWN = 1  # the size that `run` gives to a dimension that neither the model nor --shape fixes


def model_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="path of an ONNX model")
    parser.add_argument("--devices", help="ids separated by commas, the most wanted first (default: all found)")
    parser.add_argument(
        "--shape", action="append", default=[], metavar="NAME=1x3x224x224", help="shape of an input; may be repeated"
    )
    parser.add_argument(
        "--pin", action="append", default=[], metavar="NODE=DEVICE", help="a node or operator on a device"
    )
    parser.add_argument("--no-optimise", action="store_true", help="take the graph as it was read")
    parser.add_argument("--json", action="store_true", help="print JSON")


def loaded(options: argparse.Namespace) -> Session:
    """A session as the arguments of `model_arguments` and `--threads` ask for."""
    from opweave import api

    return api.load(
        options.model,
        options.devices,
        optimise=not options.no_optimise,
        pins=pairs(options.pin, "--pin"),
        threads=options.threads,
    )


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """`NAME=VALUE` texts; the name may hold `=`, the value not."""
    found = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        if not (name and equals and value):
            raise UsageError(f"{option} {text!r}", "it is not NAME=VALUE", f"write {option} name=value")
        found[name] = value
    return found


def shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Shapes by input name; `scalar` is the shape without dimensions."""
    return {name: _shape(name, text) for name, text in pairs(texts, "--shape").items()}


def _shape(name: str, text: str) -> tuple[int, ...]:
    if text == "scalar":
        return ()
    parts = text.lower().split("x")
    if not all(p.isdecimal() for p in parts):
        raise UsageError(
            f"--shape {name}={text}", "it is not a shape", "write sizes with x between, such as 1x3x224x224"
        )
    return tuple(map(int, parts))


def made_up(types: Mapping[str, Type | None], given: Mapping[str, Sequence[Dim]], seed: int = 0) -> dict[str, Any]:
    """Inputs where the user gives none, always the same: normal floats, zeros and ones, booleans, words."""
    import numpy as np

    rng = np.random.default_rng(seed)
    return {name: _made_up(name, kind, given.get(name), rng) for name, kind in types.items()}


@contextlib.contextmanager
def guessing(types: Mapping[str, Type | None], given: Mapping[str, Sequence[Dim]]) -> Iterator[None]:
    """A fault in here tells which inputs have sizes that nobody gave: a model may not take them."""
    try:
        yield
    except OpweaveError as error:
        open_shapes = {n: t.shape for n, t in types.items() if n not in given and isinstance(t, TensorType) and t.shape}
        guessed = [n for n, shape in open_shapes.items() if not all(isinstance(d, int) for d in shape)]
        if guessed:
            error.hint = f"open sizes of {', '.join(guessed)} were taken as {UNKNOWN}: give --shape {guessed[0]}=..."
        raise


def _made_up(name: str, kind: Type | None, shape: Sequence[Dim] | None, rng: Any) -> Any:
    import numpy as np

    if not isinstance(kind, TensorType):
        raise UsageError(f"an input for {name!r}", f"its type is {kind}", "use the Python API for it")
    if shape is None and kind.shape is None:
        raise UsageError(f"an input for {name!r}", "the model does not say its rank", f"give --shape {name}=...")
    dims = tuple(d if isinstance(d, int) else UNKNOWN for d in (shape if shape is not None else kind.shape or ()))
    if kind.dtype is DType.STRING:
        return np.full(dims, "text", dtype=object)
    if kind.dtype is DType.BOOL:
        return rng.integers(0, 2, dims).astype(bool)
    if kind.dtype.numpy.kind in "iu":
        return np.asarray(rng.integers(0, 2, dims)).astype(kind.dtype.numpy)
    return np.asarray(rng.normal(size=dims)).astype(kind.dtype.numpy)
