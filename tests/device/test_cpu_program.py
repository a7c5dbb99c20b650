"""Programs of the `cpu` device against the reference: memory sharing, shapes known and not, control flow, objects."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from opweave.dtypes import DType
from opweave.errors import ExecutionError, UsageError
from opweave.graph import Graph, Value
from opweave.provider import HostBuffer, Stream
from opweave.read import read_graph
from opweave.reference import evaluate_graph
from opweave.specialise import specialise
from opweave.types import TensorType, Type
from opweave_cpu.device import CpuDevice, CpuProvider

Array = np.ndarray[Any, Any]


def graph_of(text: str, *shapes: tuple[int, ...]) -> Graph:
    """The graph of a model's text; with `shapes`, specialised to inputs of these."""
    header = '<ir_version: 10, opset_import: ["" : 22]>\n'
    graph = read_graph(onnx.parser.parse_model(header + text), optimise=False)
    types: dict[str, Type] = {v.name: v.type for v in graph.inputs if v.type is not None}
    for value, shape in zip(graph.inputs, shapes, strict=False):
        assert value.tensor is not None
        types[value.name] = TensorType(value.tensor.dtype, shape)
    return specialise(graph, types)


def check(graph: Graph, *inputs: Any) -> list[Any]:
    """Runs twice (the second call reuses the first one's memory) and compares with the reference."""
    program = CpuDevice(2).compile(graph)
    wanted = evaluate_graph(graph, {v.name: x for v, x in zip(graph.inputs, inputs, strict=True)})
    for _ in range(2):
        outputs = program.call(inputs)
        for value, got in zip(graph.outputs, outputs, strict=True):
            same(got, wanted[value.name])
    return outputs


def same(got: Any, wanted: Any) -> None:
    if isinstance(wanted, list):
        assert len(got) == len(wanted)
        for g, w in zip(got, wanted, strict=True):
            same(g, w)
        return
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    if got.dtype.kind in "OUS":
        assert got.tolist() == wanted.tolist()
    else:
        np.testing.assert_allclose(got.astype(np.float64), wanted.astype(np.float64), 1e-5, 1e-6)


def ramp(*shape: int) -> Array:
    return np.linspace(-2, 2, int(np.prod(shape)), dtype=np.float32).reshape(shape)


CHAIN = """g (float[N,M] x) => (float[N,M] y) {
    a = Relu(x)  b = Add(a, x)  c = Mul(b, a)  d = Neg(c)  e = Add(d, b)  y = Sub(e, c)
}"""


@pytest.mark.parametrize("shapes", [(), ((3, 5),)])
def test_chain(shapes: tuple[tuple[int, ...], ...]) -> None:
    check(graph_of(CHAIN, *shapes), ramp(3, 5))


def test_zero_size() -> None:
    check(graph_of(CHAIN, (0, 5)), ramp(0, 5))


def test_arena_is_shared() -> None:
    use = CpuDevice(1).compile(graph_of(CHAIN, (64, 64))).memory()
    assert use.lower_bound <= use.arena < 5 * 64 * 64 * 4


def test_new_shapes_without_rebuilding() -> None:
    program = CpuDevice(1).compile(graph_of(CHAIN))
    for n in range(1, 20):
        x = ramp(n, 3)
        wanted = evaluate_graph(graph_of(CHAIN), {"x": x})
        np.testing.assert_allclose(program.call([x])[0], wanted["y"], 1e-6)


def test_outputs_are_the_callers() -> None:
    graph = graph_of("""g (float[4] x) => (float[4] y, float[4] z, float[4] z2, float[2,2] r, float[2] w)
        <float[2] w = {1, 2}, int64[2] s = {2, 2}> { y = Identity(x)  z = Neg(x)  r = Reshape(x, s) z2 = Identity(z) }""")
    x = ramp(4)
    program = CpuDevice(1).compile(graph)
    first = program.call([x])
    for out in first:
        assert out.flags.writeable
        assert not np.shares_memory(out, x)
        out[...] = 100
    for got, wanted in zip(program.call([x]), [x, -x, -x, x.reshape(2, 2), np.array([1, 2])], strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_inputs_need_not_be_contiguous_or_writable() -> None:
    x = ramp(5, 3).T
    x.flags.writeable = False
    check(graph_of(CHAIN, (3, 5)), x)


def test_view_of_unknown_shape_keeps_its_bytes() -> None:
    text = """g (float[4,4] x, int64[2] s) => (float[A,B] y) {
        a = Neg(x)  v = Reshape(a, s)  b = Relu(x)  c = Neg(b)  d = Abs(c)  t = Reshape(d, s)  y = Add(v, t) }"""
    check(graph_of(text, (4, 4), (2,)), ramp(4, 4), np.array([2, 8]))


IF = """g (bool c, float[3] x) => (float[3] y) {
    a = Neg(x)
    b = If(c) <then_branch = t () => (float[3] u) { u = Add(a, x) p = Neg(u) },
               else_branch = e () => (float[3] v) { v = Identity(a) }>
    d = Abs(a)
    y = Add(b, d)
}"""


@pytest.mark.parametrize("condition", [True, False])
def test_if(condition: bool) -> None:
    check(graph_of(IF), np.array(condition), ramp(3))


LOOP = """g (int64 n, float[3] x) => (float[3] y, float[K,3] s) {
    c = Constant<value = bool {1}>()
    h = Mul(x, x)
    y, s = Loop(n, c, x) <body = b (int64 i, bool go, float[3] v) => (bool go2, float[3] w, float[3] o) {
        go2 = Identity(go)
        f = CastLike(i, v)
        q = Add(v, h)
        w = Add(q, f)
        o = Neg(w)
    }>
}"""


@pytest.mark.parametrize("count", [0, 1, 5])
def test_loop(count: int) -> None:
    check(graph_of(LOOP), np.array(count), ramp(3))


def test_loop_ends_by_its_condition() -> None:
    text = """g (float x) => (float y) {
        n = Constant<value = int64 {100}>()  c = Constant<value = bool {1}>()  limit = Constant<value = float {50}>()
        y = Loop(n, c, x) <body = b (int64 i, bool go, float v) => (bool less, float w) {
            w = Add(v, v)
            less = Less(w, limit)
        }> }"""
    check(graph_of(text), np.float32(1).reshape(()))


@pytest.mark.parametrize(("axis", "direction"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_scan(axis: int, direction: int) -> None:
    text = f"""g (float[2] s, float[A,B] x) => (float[2] y, float[C,D] z) {{
        y, z = Scan<num_scan_inputs = 1, scan_input_axes = [{axis}], scan_input_directions = [{direction}],
                    scan_output_axes = [{axis}], scan_output_directions = [{direction}],
                    body = b (float[2] v, float[2] i) => (float[2] w, float[2] o) {{ w = Add(v, i) o = Mul(w, i) }}>(s, x)
    }}"""
    check(graph_of(text), ramp(2), ramp(3, 2) if axis == 0 else ramp(2, 3))


def test_sequence_through_a_loop() -> None:
    text = """g (int64 n, float[2] x) => (seq(float[2]) y, float[K] z) {
        c = Constant<value = bool {1}>()
        e = SequenceEmpty()
        y = Loop(n, c, e) <body = b (int64 i, bool go, seq(float[2]) v) => (bool go2, seq(float[2]) w) {
            go2 = Identity(go)
            a = Add(x, x)
            w = SequenceInsert(v, a)
        }>
        z = ConcatFromSequence<axis = 0>(y)
    }"""
    check(graph_of(text), np.array(3), ramp(2))


def test_strings_and_tail_operators() -> None:
    text = """g (string[2] a, string[2] b, float[3] x) => (string[2] c, float[3] y) {
        c = StringConcat(a, b)
        d = BlackmanWindow(n)
        e = Neg(x)
        y = Add(d, e)
    }"""
    text = text.replace(" {\n        c =", " <int64 n = {3}> {\n        c =", 1)
    words = np.array(["a", "b"], object), np.array(["x", "ü"], object)
    check(graph_of(text), *words, ramp(3))


def test_extension_types() -> None:
    import ml_dtypes

    check(
        graph_of("g (bfloat16[4] x) => (bfloat16[4] y) { a = Neg(x) y = Abs(a) }"), ramp(4).astype(ml_dtypes.bfloat16)
    )


def test_errors_name_the_node() -> None:
    graph = graph_of("g (float[A] x, float[B] y) => (float[C] z) { a = Neg(x) z = Add(a, y) }")
    with pytest.raises(ExecutionError, match=r"running Add on \(float32\[3\], float32\[4\]\).*op Add"):
        CpuDevice(1).compile(graph).call([ramp(3), ramp(4)])


def test_a_value_beyond_memory_is_refused() -> None:
    graph = graph_of("g (float x, int64[2] s) => (float[A,B] y) { a = Neg(x) y = Expand(a, s) }")
    program = CpuDevice(1).compile(graph)
    with pytest.raises(ExecutionError):
        program.call([np.float32(1).reshape(()), np.array([1 << 20, 1 << 20])])


def test_failed_calls_leave_the_program_whole() -> None:
    program = CpuDevice(1).compile(graph_of("g (float[A] x, float[B] y) => (float[C] z) { z = Add(x, y) }"))
    for _ in range(3):
        with pytest.raises(ExecutionError):
            program.call([ramp(3), ramp(4)])
        np.testing.assert_array_equal(program.call([ramp(4), ramp(4)])[0], 2 * ramp(4))


def test_many_threads_call_at_once() -> None:
    program = CpuDevice(2).compile(graph_of(CHAIN, (256, 256)))
    x = ramp(256, 256)
    wanted = program.call([x])[0]
    wrong: list[int] = []

    def calls() -> None:
        for i in range(30):
            if not np.array_equal(program.call([x])[0], wanted):
                wrong.append(i)

    threads = [threading.Thread(target=calls) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_buffers_of_the_contract() -> None:
    program = CpuDevice(1).compile(graph_of(CHAIN, (2, 3)))
    x, y = ramp(2, 3), np.zeros((2, 3), np.float32)
    (out,) = program.run([HostBuffer(x)], [HostBuffer(y)], Stream())
    assert isinstance(out, HostBuffer)
    assert out.array is y
    np.testing.assert_array_equal(y, program.call([x])[0])


def test_profile_names_every_instruction() -> None:
    outputs, rows = CpuDevice(1).compile(graph_of(CHAIN, (2, 3))).profile([ramp(2, 3)])
    assert len(outputs) == 1
    assert rows
    assert all(r.native and r.seconds >= 0 for r in rows)
    assert sum(r.nbytes for r in rows) >= 2 * 2 * 3 * 4


@pytest.mark.parametrize("threads", [1, 2])
def test_the_peak_is_that_of_vector_units(threads: int) -> None:
    assert CpuDevice(threads).peak() > 2e9


def test_provider() -> None:
    provider = CpuProvider()
    (info,) = provider.devices()
    assert info.id == "cpu"
    device = provider.open("cpu", {"threads": 1})
    graph = graph_of(IF)
    assert [device.unsupported(n) for n in graph.nodes] == [None] * len(graph.nodes)
    with pytest.raises(UsageError, match="speed"):
        provider.open("cpu", {"speed": 3})
    with pytest.raises(UsageError, match="threads"):
        provider.open("cpu", {"threads": 0})


SUMS = "g (float[4] x) => (float[4] y) <int64 i = {0}> { w = CumSum(x, i) a = Add(w, x) b = Neg(a) y = CumSum(b, i) }"


def test_inferred_shapes_that_do_not_hold() -> None:
    graph = graph_of(SUMS)
    wrong = Value("w", TensorType(DType.FLOAT32, (9,)))
    first, second, *rest = graph.nodes
    nodes = (replace(first, outputs=(wrong,)), replace(second, inputs=(wrong, graph.inputs[0])), *rest)
    check(replace(graph, nodes=nodes), ramp(4))


def test_values_after_a_reference_call_share_the_arena() -> None:
    check(graph_of(SUMS), ramp(4))
    assert CpuDevice(1).compile(graph_of(SUMS)).memory().arena > 0


@pytest.mark.parametrize("size", [1 << 20, 1 << 29, 1 << 31])
def test_sizes_beyond_any_memory_are_refused(size: int) -> None:
    """Known when the program is built; at 2^31 x 2^31 the bytes do not fit 64 bits."""
    graph = graph_of(
        f"g (float[{size},1] x, float[1,{size}] y) => (float[A,B] z) {{ s = Neg(x) t = Add(s, y) z = Add(t, t) }}"
    )
    shapes = [(size, 1), (1, size)]
    inputs = [np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), s, (0, 0)) for s in shapes]
    if size > 1 << 20:  # building is enough: nobody has such inputs
        CpuDevice(1).compile(graph)
        return
    with pytest.raises(ExecutionError):
        CpuDevice(1).compile(graph).call(inputs)
