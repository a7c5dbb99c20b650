"""Conversions of the `cpu` provider: Cast, CastLike, BitCast and the quantising operators."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper, numpy_helper
from opweave_cpu import _core

Array = np.ndarray[Any, Any]
NODE_OPERATORS = ["Cast", "CastLike", "BitCast", "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"]

FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
INTS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
FLOAT8 = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz]
PACKED = [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2]
FLOAT4 = [ml_dtypes.float4_e2m1fn]
ALL = [*FLOATS, *INTS, np.bool_, *FLOAT8, *PACKED, *FLOAT4, ml_dtypes.float8_e8m0fnu]


def code(dtype: Any) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def cast(core: Any, x: Array, to: Any, threads: int = 1, **attrs: Any) -> Array:
    (y,) = core.run("Cast", [x], {"to": code(to), **attrs}, [to], threads=threads)
    assert y.dtype == to
    assert y.shape == x.shape
    return np.asarray(y)


def same(got: Array, want: Array) -> None:
    """Equal values, NaN equal to NaN, zeros with their signs."""
    wide = np.float64 if got.dtype.kind in "fV" else got.dtype
    np.testing.assert_array_equal(got.astype(wide), want.astype(wide))
    numbers = want == want
    np.testing.assert_array_equal(
        np.signbit(got.astype(np.float64))[numbers], np.signbit(want.astype(np.float64))[numbers]
    )


def has_six_bits(case: Any) -> bool:
    return any(a.dtype.name.startswith("float6_") for a in (*case.inputs, *case.outputs))


def test_node(core: Any, node_case: Any) -> None:
    if has_six_bits(node_case):
        with pytest.raises(_core.Unsupported):
            node_case.check(core)
    else:
        node_case.check(core)


@pytest.mark.parametrize("source", ALL)
@pytest.mark.parametrize("target", ALL)
def test_small_values_between_all_types(core: Any, source: Any, target: Any) -> None:
    values = [1, 1] if ml_dtypes.float8_e8m0fnu in (source, target) else [0, 1]  # it has no zero
    x = np.array(values * 3001).reshape(2, -1).astype(source)
    want = x.astype(np.float32).astype(target)
    for threads in (1, 2):
        same(cast(core, x, target, threads), want)
    same(cast(core, x[:, :0], target), want[:, :0])
    same(cast(core, x[0, 0], target), want[0, 0])


@pytest.mark.parametrize("source", INTS)
@pytest.mark.parametrize("target", [*INTS, *FLOATS, np.bool_, *PACKED])
def test_integers(core: Any, source: Any, target: Any) -> None:
    info = np.iinfo(source)
    x = np.random.default_rng(1).integers(info.min, info.max, 3000, source, endpoint=True)
    x = np.concatenate([x, np.array([info.min, info.max, 0, 1, 7, 8, 15, 16, 100], source)])
    with np.errstate(over="ignore"):
        same(cast(core, x, target), x.astype(target))


def patterns() -> Array:
    bits = np.random.default_rng(2).integers(0, 1 << 32, 200_000, np.uint32)
    x = bits.view(np.float32)
    scaled = (
        np.random.default_rng(3).normal(0, 1, 100_000) * np.exp2(np.random.default_rng(4).integers(-30, 20, 100_000))
    ).astype(np.float32)
    special = np.array(
        [0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3.4e38, 65504, 65519, 65520, 448, 464, 465, 57344], np.float32
    )
    return np.concatenate([x[np.isfinite(x)], scaled, special])


@pytest.mark.parametrize("target", [np.float16, ml_dtypes.bfloat16, *FLOAT8, *FLOAT4])
@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_rounding_of_narrow_floats(core: Any, source: Any, target: Any) -> None:
    x = patterns()
    with np.errstate(over="ignore", invalid="ignore"):
        same(cast(core, x.astype(source), target, saturate=0), x.astype(target))
        if target in FLOAT8:
            same(cast(core, x.astype(source), target), numpy_helper.saturate_cast(x, np.dtype(target)))


@pytest.mark.parametrize("target", [np.float16, ml_dtypes.bfloat16, *FLOAT8, *FLOAT4])
def test_float64_is_rounded_once(core: Any, target: Any) -> None:
    """Just beside the middle of two neighbours, where a stop at float32 would lose the difference."""
    middle = (patterns().view(np.uint32) & np.uint32(0xFFFFF000)).view(np.float32)
    middle = middle[(np.abs(middle) > 1e-37) & (np.abs(middle) < 1e38)]
    for factor, limit in ((1 + 2.0**-40, np.inf), (1 - 2.0**-40, 0)):
        beside = np.nextafter(middle, np.copysign(np.float32(limit), middle))
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            same(cast(core, middle.astype(np.float64) * factor, target, saturate=0), beside.astype(target))


@pytest.mark.parametrize(
    "source", [np.float16, ml_dtypes.bfloat16, *FLOAT8, *FLOAT4, *PACKED, ml_dtypes.float8_e8m0fnu]
)
def test_every_code(core: Any, source: Any) -> None:
    wide = np.dtype(source).itemsize == 2
    codes = 1 << (16 if wide else ml_dtypes.iinfo(source).bits if source in PACKED else 4 if source in FLOAT4 else 8)
    x = np.arange(codes, dtype=np.uint16 if wide else np.uint8).view(source)
    with np.errstate(invalid="ignore"):  # signalling NaN
        for target in (np.float32, np.float64):
            same(cast(core, x, target), x.astype(target))


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_powers_of_two(core: Any, mode: str, saturate: int) -> None:
    x = np.abs(patterns())
    want = numpy_helper.to_float8e8m0(x, bool(saturate), mode)
    same(cast(core, x, ml_dtypes.float8_e8m0fnu, round_mode=mode, saturate=saturate), want)


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("target", [*INTS, np.bool_, *PACKED])
def test_floats_to_integers_truncate(core: Any, source: Any, target: Any) -> None:
    bounds = (0, 1) if target == np.bool_ else (ml_dtypes.iinfo(target).min, ml_dtypes.iinfo(target).max)
    low, high = max(bounds[0], -(2**53)), min(bounds[1], 2**53)
    if source == np.float16:
        low, high = max(low, -65504), min(high, 65504)
    x = np.random.default_rng(5).uniform(low, high, 3000).astype(source)
    x = x[(x.astype(np.float64) >= low) & (x.astype(np.float64) <= high)]
    same(cast(core, x, target), x.astype(np.float64).astype(target))


def test_out_of_range_floats_do_not_trap(core: Any) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30])
    for source in FLOATS:
        for target in (*INTS, *PACKED):
            with np.errstate(over="ignore"):
                cast(core, x.astype(source), target)
        np.testing.assert_array_equal(cast(core, x.astype(np.float32), np.bool_), [True] * 5)


def test_cast_like_takes_the_type_of_its_second_operand(core: Any) -> None:
    x = np.array([1.5, -2.5, 1e6], np.float32)
    for target in (np.int32, np.float16, ml_dtypes.float8_e5m2):
        for saturate in (0, 1):
            (y,) = core.run("CastLike", [x, np.zeros((0, 2), target)], {"saturate": saturate}, [target])
            with np.errstate(over="ignore"):
                same(y, cast(core, x, target, saturate=saturate))


def test_bit_cast(core: Any) -> None:
    x = np.random.default_rng(6).normal(size=(3, 5)).astype(np.float32)
    (y,) = core.run("BitCast", [x], {"to": code(np.int32)}, [np.int32])
    np.testing.assert_array_equal(y, x.view(np.int32))
    with pytest.raises(_core.BadOperand):
        core.run("BitCast", [x], {"to": code(np.int64)}, [np.int64])


def test_types_without_a_conversion(core: Any) -> None:
    x = np.ones(2, np.float32)
    for to in (8, 14, 15, 27, 28):
        with pytest.raises(_core.Unsupported):
            core.run("Cast", [x], {"to": to})
    with pytest.raises(_core.BadOperand):
        core.run("Cast", [x], {"to": code(ml_dtypes.float8_e8m0fnu), "round_mode": "sideways"})


QUANTIZED = [np.int8, np.uint8, np.int16, np.uint16, *PACKED]


def spread(p: Array, shape: tuple[int, ...], axis: int, block: int) -> Array:
    """A scale or zero point, element by element."""
    if p.size == 1:
        return p.reshape(())
    if block == 0:
        return p.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return np.repeat(p, block, axis).take(range(shape[axis]), axis)


def granularities(shape: tuple[int, ...]) -> list[tuple[tuple[int, ...], int, int]]:
    """Shape of the scale, axis, block size."""
    found: list[tuple[tuple[int, ...], int, int]] = [((), 1, 0), ((1,), 0, 0)]
    for axis, size in enumerate(shape):
        found.append(((size,), axis, 0))
        for block in (2, 3, 7):
            blocks = tuple(-(-n // block) if i == axis else n for i, n in enumerate(shape))
            found.append((blocks, axis, block))
    return found


@pytest.mark.parametrize("target", QUANTIZED)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@np.errstate(over="ignore")  # float16
def test_quantize_and_dequantize(core: Any, target: Any, dtype: Any) -> None:
    rng = np.random.default_rng(7)
    info = ml_dtypes.iinfo(target)
    for shape in [(6, 14), (2, 9, 4), (3, 700, 2), (0, 4)]:
        x = (rng.normal(0, 1, shape) * int(info.max)).astype(dtype)
        for p_shape, axis, block in granularities(shape):
            scale = np.asarray(rng.uniform(0.4, 2, p_shape)).astype(dtype)
            zero = np.asarray(rng.integers(int(info.min), int(info.max), p_shape, endpoint=True)).astype(target)
            attrs = {"axis": axis - len(shape) if len(shape) == 3 else axis, "block_size": block}
            s, z = (spread(p, shape, axis, block) for p in (scale, zero))
            q = np.rint((x / s).astype(np.float32)) + z.astype(np.float32)
            want = np.clip(q, int(info.min), int(info.max)).astype(np.int64)
            (y,) = core.run("QuantizeLinear", [x, scale, zero], attrs, [target])
            np.testing.assert_array_equal(y.astype(np.int64), want)
            (d,) = core.run("DequantizeLinear", [y, scale, zero], attrs, [dtype])
            exact = (y.astype(np.float32) - z.astype(np.float32)) * s.astype(np.float32)
            same(d, exact.astype(dtype))


@pytest.mark.parametrize("target", [*FLOAT8, *FLOAT4])
def test_quantize_to_narrow_floats(core: Any, target: Any) -> None:
    x = np.random.default_rng(8).normal(0, 300, (5, 8)).astype(np.float32)
    scale = np.array([0.5, 1, 2, 3, 4], np.float32)
    (y,) = core.run("QuantizeLinear", [x, scale], {"axis": 0, "output_dtype": code(target)}, [target])
    quotient = x / scale[:, None]
    want = numpy_helper.saturate_cast(quotient, np.dtype(target)) if target in FLOAT8 else quotient.astype(target)
    same(y, want)
    (d,) = core.run("DequantizeLinear", [y, scale], {"axis": 0, "output_dtype": code(np.float16)}, [np.float16])
    same(d, (y.astype(np.float32) * scale[:, None]).astype(np.float16))


def test_quantize_precision_and_extremes(core: Any) -> None:
    x, scale = np.array([2049.0, 1e30, -1e30, np.nan], np.float32), np.float32(2)
    (y,) = core.run("QuantizeLinear", [x, scale, np.int16(0)], {"precision": code(np.float16)}, [np.int16])
    np.testing.assert_array_equal(y, [1024, 32767, -32768, -32768])
    (y,) = core.run("QuantizeLinear", [np.array([7, -7], np.int32), np.int32(2), np.int8(1)], {}, [np.int8])
    np.testing.assert_array_equal(y, [5, -3])


def test_dynamic_quantize(core: Any) -> None:
    for shape in [(7,), (300, 700), (), (0,)]:
        x = np.asarray(np.random.default_rng(9).normal(1, 3, shape)).astype(np.float32)
        y, scale, zero = core.run("DynamicQuantizeLinear", [x], {}, [np.uint8, np.float32, np.uint8], threads=2)
        low, high = np.float32(min(0, x.min(initial=0))), np.float32(max(0, x.max(initial=0)))
        s = np.float32(1 if low == high else high - low) / np.float32(255)
        z = np.rint(np.clip(-low / s, 0, 255))
        assert scale == s
        assert zero == z
        np.testing.assert_array_equal(y, np.clip(np.rint(x / s) + z, 0, 255).astype(np.uint8))


@pytest.mark.parametrize(
    ("scale", "attrs"),
    [
        (np.ones(2, np.float32), {}),
        (np.ones((4, 2), np.float32), {"block_size": 3}),
        (np.ones(3, np.float32), {"axis": 2}),
    ],
)
def test_bad_scales_are_refused(core: Any, scale: Array, attrs: dict[str, Any]) -> None:
    with pytest.raises(_core.BadOperand):
        core.run("QuantizeLinear", [np.ones((4, 3), np.float32), scale], attrs, [np.uint8])
