"""Einsum of the `cpu` provider against NumPy and ONNX's node tests."""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from opweave_cpu import _core

Array = np.ndarray[Any, Any]
NODE_OPERATORS = ["Einsum"]
INTS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


def test_node(core: Any, node_case: Any) -> None:
    node_case.check(core)


def check(core: Any, equation: str, operands: list[Array], tolerance: float = 1e-5) -> None:
    want = np.einsum(equation.replace(" ", ""), *(x.astype(np.float64) for x in operands))
    for threads in (1, 2):
        (y,) = core.run("Einsum", operands, {"equation": equation}, threads=threads)
        assert y.shape == want.shape
        np.testing.assert_allclose(y.astype(np.float64), want, tolerance, tolerance)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("ij,jk->ki", [(33, 64), (64, 50)]),
        ("ij,jk", [(3, 4), (4, 5)]),
        ("ba,cb", [(3, 4), (5, 3)]),
        ("bij,bjk->bik", [(2, 30, 40), (2, 40, 50)]),
        ("bhid,bhjd->bhij", [(2, 3, 17, 32), (2, 3, 19, 32)]),
        ("bhij,bhjd->bhid", [(2, 3, 17, 19), (2, 3, 19, 32)]),
        ("bihd,bjhd->bhij", [(2, 17, 3, 32), (2, 19, 3, 32)]),
        ("bhij,bjhd->bihd", [(2, 3, 17, 19), (2, 19, 3, 32)]),
        ("bhwc,hkc->bhwk", [(2, 14, 14, 32), (14, 14, 32)]),
        ("bhwc,wkc->bhwk", [(2, 14, 14, 32), (14, 14, 32)]),
        ("nchw,ij->cinh", [(2, 3, 4, 5), (2, 3)]),
        ("i,i->i", [(100,), (100,)]),
        ("i,i->", [(100,), (100,)]),
        ("i,j->ij", [(10,), (20,)]),
        ("i,j->ji", [(10,), (20,)]),
        (",->", [(), ()]),
        ("->", [()]),
        (",ij->ij", [(), (2, 3)]),
        ("ii->i", [(5, 5)]),
        ("ii", [(5, 5)]),
        ("ii->", [(5, 5)]),
        ("iji->j", [(4, 3, 4)]),
        ("ii,ij->ij", [(4, 4), (4, 6)]),
        ("ij->ji", [(40, 30)]),
        ("ij->", [(40, 30)]),
        ("ij->j", [(40, 30)]),
        ("ij->i", [(40, 30)]),
        ("...ij->...ji", [(2, 3, 4, 5)]),
        ("...", [(2, 3)]),
        ("...->...", [(2, 3)]),
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 6)]),
        ("...ij,jk->...ik", [(2, 3, 4, 5), (5, 6)]),
        ("i...,...j->ij...", [(4, 2, 3), (2, 3, 5)]),
        ("b...ij, b...jk -> b...ik", [(2, 3, 4, 5), (2, 3, 5, 6)]),
        ("...i,...i", [(3, 4), (3, 4)]),
        ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 6)]),
        ("ij,ij,ij->j", [(3, 4), (3, 4), (3, 4)]),
        ("ab,bc,cd,de->ae", [(2, 3), (3, 4), (4, 5), (5, 2)]),
        ("aB,Bc", [(2, 3), (3, 4)]),
        ("ij,jk->ik", [(3, 1), (4, 5)]),
        ("ijk,jl->il", [(3, 4, 5), (4, 6)]),
        ("ij,k->ik", [(3, 4), (5,)]),
        ("abcd,efcb->adef", [(2, 3, 4, 5), (6, 7, 4, 3)]),
    ],
)
def test_equation(core: Any, equation: str, shapes: list[tuple[int, ...]]) -> None:
    rng = np.random.default_rng(0)
    for dtype, tolerance in [(np.float32, 1e-4), (np.float64, 1e-12), (np.float16, 1e-2), (ml_dtypes.bfloat16, 6e-2)]:
        check(core, equation, [rng.uniform(0.1, 1, s).astype(dtype) for s in shapes], tolerance)


@pytest.mark.parametrize("seed", range(60))
def test_random_equations(core: Any, seed: int) -> None:
    dice = random.Random(seed)
    sizes = {c: dice.choice([1, 2, 3, 5]) for c in "abcdefG"}
    terms = ["".join(dice.choices(list(sizes), k=dice.randint(0, 4))) for _ in range(dice.randint(1, 4))]
    used = sorted(set("".join(terms)))
    output = dice.sample(used, dice.randint(0, len(used)))
    rng = np.random.default_rng(seed)
    operands = [rng.uniform(0.1, 1, [sizes[c] for c in t]).astype(np.float32) for t in terms]
    equation = ",".join(terms) + ("->" + "".join(output) if dice.random() < 0.8 else "")
    check(core, equation, operands, 1e-4)


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij,kj->ki", "ij,ij->i", "ij->j", "ij,jk->jik"])
def test_integers_wrap(core: Any, equation: str, dtype: Any) -> None:
    info = np.iinfo(dtype)
    rng = np.random.default_rng(0)
    operands = [
        rng.integers(info.min, info.max, (12, 12), dtype, endpoint=True) for _ in equation.split("->")[0].split(",")
    ]
    (y,) = core.run("Einsum", operands, {"equation": equation})
    np.testing.assert_array_equal(y, np.einsum(equation, *operands))


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [("ij,jk->ik", [(2, 0), (0, 3)]), ("ij,jk->ik", [(0, 2), (2, 3)]), ("ij->j", [(0, 4)]), ("ij->", [(2, 0)])],
)
def test_empty(core: Any, equation: str, shapes: list[tuple[int, ...]]) -> None:
    check(core, equation, [np.ones(s, np.float32) for s in shapes])


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (4, 5)]),
        ("ii->i", [(2, 3)]),
        ("ij->i", [(2,)]),
        ("ij->i", [(2, 3, 4)]),
        ("...ij->...", [(2,)]),
        ("...i,...i->i...", [(2, 4), (3, 4)]),
    ],
)
def test_shapes_that_do_not_fit(core: Any, equation: str, shapes: list[tuple[int, ...]]) -> None:
    with pytest.raises(_core.BadOperand):
        core.run("Einsum", [np.ones(s, np.float32) for s in shapes], {"equation": equation})


@pytest.mark.parametrize("equation", ["", "i,j", "i->ii", "i->j", "i1->i", "i..->i", "......->...", "i->i->i"])
def test_no_equation(core: Any, equation: str) -> None:
    with pytest.raises((_core.Unsupported, _core.BadOperand)):
        core.run("Einsum", [np.ones(3, np.float32)], {"equation": equation})
