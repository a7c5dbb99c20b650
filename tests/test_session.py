"""Sessions over the `cpu` device: what a caller may give, what it gets, and what goes wrong how."""

from __future__ import annotations

import asyncio
import threading
import time

import numpy as np
import onnx
import onnx.parser
import opweave
import pytest
from opweave.errors import InputError, ModelError, OpweaveError, UsageError

MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 3] x, float[3] w) => (float[N, 3] y, float[N] total) {
    p = Mul(x, w)
    y = Relu(p)
    axes = Constant<value_ints = [1]>()
    s = ReduceSum<keepdims = 0>(y, axes)
    total = Identity(s)
}"""


def model(text: str = MODEL) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


@pytest.fixture(scope="module")
def session() -> opweave.Session:
    return opweave.load(model(), devices="cpu")


X = np.array([[1, -2, 3], [4, 5, -6]], np.float32)
W = np.array([1, 2, 0.5], np.float32)
Y = np.maximum(X * W, 0)


def test_inputs_by_name_and_by_place_give_outputs_in_the_models_order(session: opweave.Session) -> None:
    for given in ({"w": W, "x": X}, [X, W], (X, W)):
        results = session.run(given)
        assert list(results) == ["y", "total"]
        np.testing.assert_array_equal(results["y"], Y)
        np.testing.assert_array_equal(results["total"], Y.sum(1))


def test_chosen_outputs(session: opweave.Session) -> None:
    assert list(session.run([X, W], outputs=["total"])) == ["total"]
    with pytest.raises(UsageError, match=r"output 'z'.*y, total"):
        session.run([X, W], outputs=["z"])


def test_types_are_the_models(session: opweave.Session) -> None:
    assert [str(t) for t in session.inputs.values()] == ["float32[N,3]", "float32[3]"]
    assert list(session.outputs) == ["y", "total"]


def test_every_shape_gets_a_plan_and_zero_rows_are_rows(session: opweave.Session) -> None:
    for rows in (1, 0, 7, 1):
        x = np.ones((rows, 3), np.float32)
        assert session.run([x, W])["y"].shape == (rows, 3)
    assert session.plan.graph.inputs[0].tensor.shape == (1, 3)


def test_arrays_that_are_not_plain_are_taken(session: opweave.Session) -> None:
    class Foreign:
        """Speaks DLPack only."""

        def __dlpack__(self, **keywords: object) -> object:
            return X.__dlpack__(**keywords)

        def __dlpack_device__(self) -> object:
            return X.__dlpack_device__()

    strided = np.zeros((2, 6), np.float32)
    strided[:, ::2] = X
    for x in (X.tolist(), Foreign(), strided[:, ::2], np.asfortranarray(X), X.astype(">f4")):
        np.testing.assert_array_equal(session.run([x, W])["y"], Y)


def test_outputs_speak_dlpack(session: opweave.Session) -> None:
    np.testing.assert_array_equal(np.from_dlpack(session.run([X, W])["y"]), Y)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"x": X}, "missing 'w'"),
        ({"x": X, "w": W, "v": W}, "unknown 'v'"),
        ([X], "1 values"),
        ([X.astype(np.float64), W], "float64"),
        ([X, W[:2]], "shape 2"),
        ([X[0], W], "shape 3"),
        (["text", W], "cannot read str"),
        (3, "found int"),
    ],
)
def test_wrong_inputs_are_named(session: opweave.Session, given: object, found: str) -> None:
    with pytest.raises(InputError) as error:
        session.run(given)  # type: ignore[arg-type]
    assert found in str(error.value)


def test_results_are_the_callers() -> None:
    text = (
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y, float[2] c) {'
        " y = Identity(x) c = Constant<value_floats = [1.0, 2.0]>() }"
    )
    session = opweave.load(model(text), devices="cpu")
    x = np.ones(2, np.float32)
    first = session.run([x])
    first["y"][:] = 7
    first["c"][:] = 7
    np.testing.assert_array_equal(x, [1, 1])
    np.testing.assert_array_equal(session.run([x])["c"], [1, 2])


def test_many_threads_share_a_session(session: opweave.Session) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).normal(size=(seed % 5 + 1, 3)).astype(np.float32)
        for _ in range(50):
            if not np.array_equal(session.run([x, W])["y"], np.maximum(x * W, 0)):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_futures_and_await(session: opweave.Session) -> None:
    futures = [session.run_async([X * i, W]) for i in range(1, 5)]
    for i, future in enumerate(futures, 1):
        np.testing.assert_array_equal(future.result()["y"], np.maximum(X * i * W, 0))

    async def main() -> dict[str, object]:
        return dict(await session.arun([X, W]))

    np.testing.assert_array_equal(asyncio.run(main())["y"], Y)


def test_control_flow_runs_over_outer_values() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N] x, bool c) => (float[N] y) {
        d = Add(x, x)
        y = If(c) <
            then_branch = t () => (float[N] a) { a = Mul(d, x) },
            else_branch = e () => (float[N] b) { b = Neg(d) }
        >
    }"""
    session = opweave.load(model(text), devices="cpu")
    x = np.array([1, 2, 3], np.float32)
    np.testing.assert_array_equal(session.run([x, np.array(True)])["y"], 2 * x * x)
    np.testing.assert_array_equal(session.run([x, np.array(False)])["y"], -2 * x)


def test_output_sizes_that_depend_on_data() -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (int64[1, M] y) { y = NonZero(x) }'
    session = opweave.load(model(text), devices="cpu")
    for x in ([0, 1, 0, 2], [0, 0], []):
        np.testing.assert_array_equal(session.run([np.array(x, np.float32)])["y"], [np.flatnonzero(x)])


def test_what_cannot_be_loaded_is_said() -> None:
    with pytest.raises(UsageError, match=r"device 'npu:7'"):
        opweave.load(model(), devices=["npu:7"])
    with pytest.raises(UsageError, match="option 'speed'"):
        opweave.load(model(), devices="cpu", options={"cpu": {"speed": 1}})
    with pytest.raises(UsageError, match="pin of 'Conv'"):
        opweave.load(model(), devices="cpu", pins={"Conv": "cpu"}).plan_for()
    with pytest.raises(ModelError):
        opweave.load(b"not a model")


HUGE = [
    "y = ConstantOfShape(n)",
    "y = Expand(x, n)",
    "y = Tile(x, n)",
    "two = Concat<axis = 0>(n, n) big = Expand(x, two) y = Relu(big)",
    "zero = Constant<value_int = 0>() one = Constant<value_int = 1>() s = Squeeze(n) y = Range(zero, s, one)",
    "zero = Constant<value_ints = [0]>() p = Concat<axis = 0>(zero, n) y = Pad(x, p)",
    'r = CastLike(n, x) y = Resize<mode = "nearest">(x, , r)',
    "i = Constant<value_ints = [0]>() d = Squeeze(n) y = OneHot(i, d, v)",
]


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("nodes", HUGE)
def test_results_too_large_for_the_machine(nodes: str, constant: bool) -> None:
    """2^40 elements, asked for by a value or by the model itself: one clear error, at once."""
    size, given = ("", "int64[1] n, ") if not constant else (f"n = Constant<value_ints = [{2**40}]>()", "")
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    g ({given}float[1] x, float[2] v) => (y) {{ {size} {nodes} }}"""
    feeds = {"x": np.ones(1, np.float32), "v": np.ones(2, np.float32)}
    if not constant:
        feeds["n"] = np.array([2**40])
    start = time.perf_counter()
    with pytest.raises(OpweaveError) as caught:
        opweave.load(model(text), devices="cpu").run(feeds)
    assert time.perf_counter() - start < 5
    assert "\n" not in str(caught.value)
    assert caught.value.context.get("op")


def test_attributes_that_contradict_the_operator_name_the_node() -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 3]>
    g (float[1, 3] x) => (float[1, 3] y) { [bad] y = ai.onnx.ml.Normalizer<norm = "L7">(x) }"""
    with pytest.raises(ModelError, match=r"Normalizer: norm is L7.*op ai\.onnx\.ml\.Normalizer"):
        opweave.load(model(text), devices="cpu").run([np.ones((1, 3), np.float32)])


def test_a_session_closes() -> None:
    with opweave.load(model(), devices="cpu") as session:
        session.run_async([X, W]).result()
