"""DFT and STFT: ONNX's node tests, NumPy's transforms on every kind of length, and hostile lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from .conftest import Array, Core, NodeCase

NODE_OPERATORS = ["DFT", "STFT"]
# Powers, mixed factors, a large prime factor, primes; 4,096 lies at the end of the vectorised form.
LENGTHS = [1, 2, 3, 4, 8, 12, 30, 31, 37, 74, 97, 400, 1024, 4096, 5003]


def test_node(core: Core, node_case: NodeCase) -> None:
    if node_case.name == "test_dft_inverse":  # expects NumPy's float32 rounding where the exact value is 0
        with pytest.raises(Exception, match="no native inverse DFT of float32"):
            node_case.check(core)
    else:
        node_case.check(core)


def parts(x: Array) -> Array:
    return np.stack([x.real, x.imag], -1)


def signal(*shape: int) -> Array:
    rng = np.random.default_rng(sum(shape))
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


@pytest.mark.parametrize("rows", [1, 3, 9])
@pytest.mark.parametrize("n", LENGTHS)
def test_complex_both_ways(core: Core, n: int, rows: int) -> None:
    x = signal(rows, n)
    (got,) = core.run("DFT", [parts(x)], threads=2)
    np.testing.assert_allclose(got, parts(np.fft.fft(x)), rtol=0, atol=1e-11)
    (back,) = core.run("DFT", [got], {"inverse": 1}, threads=2)
    np.testing.assert_allclose(back, parts(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", LENGTHS)
def test_real_half_spectrum_and_back(core: Core, n: int) -> None:
    x = signal(5, n).real
    (half,) = core.run("DFT", [x[..., None]], {"onesided": 1})
    np.testing.assert_allclose(half, parts(np.fft.rfft(x)), rtol=0, atol=1e-11)
    (back,) = core.run("DFT", [half, np.array(n)], {"onesided": 1, "inverse": 1})
    np.testing.assert_allclose(back, x[..., None], rtol=0, atol=1e-12)


def test_inverse_of_a_half_spectrum_ignores_what_cannot_be(core: Core) -> None:
    x = signal(2, 9)
    (got,) = core.run("DFT", [parts(x)], {"onesided": 1, "inverse": 1})
    np.testing.assert_allclose(got[..., 0], np.fft.irfft(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("axis", [0, 1, 2, -2, -3, -4])
@pytest.mark.parametrize("length", [None, 4, 13])
def test_axes_and_lengths(core: Core, axis: int, length: int | None) -> None:
    x = signal(5, 6, 7)
    given = None if length is None else np.array(length, np.int32)
    (got,) = core.run("DFT", [parts(x), given, np.array(axis)], threads=2)
    np.testing.assert_allclose(got, parts(np.fft.fft(x, length, axis if axis >= 0 else axis + 1)), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("dtype", "atol"), [(np.float16, 0.05), (np.float32, 1e-5), (np.float64, 1e-12)])
@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize("width", [1, 2])
def test_stft(core: Core, dtype: Any, atol: float, onesided: int, windowed: bool, width: int) -> None:
    frame, step = 24, 7
    x = signal(3, 100)
    x = (x if width == 2 else x.real + 0j).astype(np.complex64)
    given = parts(x)[..., :width].astype(dtype)
    wide = given[..., 0].astype(float) + (1j * given[..., 1].astype(float) if width == 2 else 0)
    window = np.hanning(frame).astype(dtype) if windowed else None
    frames = np.lib.stride_tricks.sliding_window_view(wide, frame, 1)[:, ::step]
    want = np.fft.fft(frames * (1 if window is None else window.astype(float)))[
        ..., : frame // 2 + 1 if onesided else frame
    ]
    length = None if windowed else np.array(frame)
    (got,) = core.run("STFT", [given, np.array(step), window, length], {"onesided": onesided}, threads=2)
    assert got.dtype == dtype
    np.testing.assert_allclose(got, parts(want), rtol=0, atol=atol)


def test_nothing_to_transform(core: Core) -> None:
    assert core.run("DFT", [np.zeros((0, 8, 2), np.float32)])[0].shape == (0, 8, 2)
    assert not core.run("DFT", [np.zeros((2, 0, 1), np.float32), np.array(4)])[0].any()
    assert core.run("STFT", [np.zeros((0, 8, 1), np.float32), np.array(2), None, np.array(4)])[0].shape == (0, 3, 3, 2)


@pytest.mark.parametrize(
    ("op", "inputs", "message"),
    [
        ("DFT", [np.zeros((2, 3), np.float32)], "does not end with"),
        ("DFT", [np.zeros(2, np.float32)], "does not end with"),
        ("DFT", [np.zeros((2, 0, 1), np.float32)], "dft_length is 0"),
        ("DFT", [np.zeros((2, 4, 1), np.float32), np.array(-3)], "dft_length is -3"),
        ("DFT", [np.zeros((2, 4, 1), np.float32), np.array(2**62)], "dft_length is"),
        ("DFT", [np.zeros((2, 4, 1), np.float32), None, np.array(-1)], "last axis"),
        ("DFT", [np.zeros((2, 4, 1), np.float32), None, np.array(3)], "axis 3"),
        ("DFT", [np.zeros((2, 4, 1), np.float32), np.array([1, 2])], "one integer"),
        ("STFT", [np.zeros((4, 1), np.float32), np.array(1)], "three dimensions"),
        ("STFT", [np.zeros((1, 4, 1), np.float32), np.array(0)], "frame_step is 0"),
        ("STFT", [np.zeros((1, 4, 1), np.float32), np.array(1), None, np.array(5)], "longer than the signal"),
        ("STFT", [np.zeros((1, 4, 1), np.float32), np.array(1), np.ones(3, np.float32), np.array(2)], "does not fit"),
        ("STFT", [np.zeros((1, 4, 1), np.float32), np.array(1), np.ones((2, 1), np.float32)], "the window has shape"),
    ],
)
def test_bad_operands(core: Core, op: str, inputs: list[Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        core.run(op, inputs)
