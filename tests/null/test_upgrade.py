"""Old forms of operators: read in their newest form, with the results that they had."""

from __future__ import annotations

import glob
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnx_models import info
from opweave.errors import ModelError
from opweave.graph import Graph
from opweave.read import read_graph
from opweave.read.check import newest_version
from opweave.read.upgrade import last_change
from opweave.reference import evaluate_graph

RNG = np.random.default_rng(0)
F32 = np.float32


def data(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.normal(size=shape).astype(F32)


def old_model(
    op: str,
    version: int,
    inputs: list[Any],
    attributes: dict[str, Any],
    weights: tuple[int, ...],
    outputs: int,
    rank: bool,
) -> onnx.ModelProto:
    """A node of an old operator set; operands whose indices are in `weights` are initializers."""
    names = [f"i{i}" if x is not None else "" for i, x in enumerate(inputs)]
    results = [f"o{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, **attributes)
    fed = [(n, x) for i, (n, x) in enumerate(zip(names, inputs, strict=True)) if n and i not in weights]
    given = [info(n, [None] * x.ndim if rank else None, helper.np_dtype_to_tensor_dtype(x.dtype)) for n, x in fed]
    kept = [numpy_helper.from_array(inputs[i], names[i]) for i in weights]
    graph = helper.make_graph([node], "g", given, [onnx.ValueInfoProto(name=r) for r in results], kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)


def evaluate(graph: Graph, proto: onnx.ModelProto, inputs: list[Any]) -> list[Any]:
    feeds = {f"i{i}": x for i, x in enumerate(inputs) if x is not None and f"i{i}" in {v.name for v in graph.inputs}}
    found = evaluate_graph(graph, feeds)
    return [found[o.name] for o in proto.graph.output]


def is_newest(graph: Graph) -> bool:
    return all(n.version == newest_version(n.op_type) for n in graph.walk())


def normalised(x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
    return (x - mean) / np.sqrt(variance + 1e-5) * scale + bias


X = data(2, 3, 4)
POSITIVE = np.abs(X) + 0.5
IMAGE = data(1, 2, 4, 6)
CASES: list[tuple[str, int, list[Any], dict[str, Any], Any]] = [
    # operator, operator set, operands, attributes, expected results (None: those of ONNX Runtime)
    ("Relu", 1, [X], {"consumed_inputs": [0]}, lambda x: np.maximum(x, 0)),
    ("Sum", 1, [X, X], {"consumed_inputs": [0, 0]}, lambda x, y: x + y),
    ("Selu", 1, [X], {}, lambda x: 1.0507 * np.where(x > 0, x, 1.6732 * (np.exp(x) - 1))),
    ("Add", 6, [X, data(2, 3, 4)], {}, np.add),
    ("Add", 6, [X, data(3, 4)], {"broadcast": 1}, np.add),
    ("Sub", 1, [X, data(3)], {"broadcast": 1, "axis": 1}, lambda x, y: x - y[:, None]),
    ("Mul", 6, [X, data(2, 3)], {"broadcast": 1, "axis": 0}, lambda x, y: x * y[:, :, None]),
    ("Div", 6, [X, POSITIVE[0, 0]], {"broadcast": 1, "axis": -1}, np.divide),
    ("Pow", 1, [POSITIVE, data(1)[0]], {"broadcast": 1}, np.power),
    ("And", 1, [X > 0, X[0, :, 0] > 0], {"broadcast": 1, "axis": 1}, lambda x, y: x & y[:, None]),
    ("Greater", 1, [X, data(3)], {"broadcast": 1, "axis": 1}, lambda x, y: x > y[:, None]),
    ("PRelu", 6, [X, data(3)], {}, lambda x, s: np.where(x < 0, x * s[:, None], x)),
    ("PRelu", 1, [X, data(1)], {"consumed_inputs": [0, 0]}, lambda x, s: np.where(x < 0, x * s, x)),
    ("Clip", 6, [X], {"min": -0.5, "max": 0.5}, lambda x: np.clip(x, -0.5, 0.5)),
    ("Clip", 1, [X], {"max": 0.5}, lambda x: np.minimum(x, F32(0.5))),
    ("Clip", 6, [X.astype(np.float64)], {"min": -0.5}, lambda x: np.maximum(x, -0.5)),
    ("Cast", 1, [X], {"to": "INT64"}, lambda x: x.astype(np.int64)),
    ("ReduceSum", 11, [X], {"axes": [1], "keepdims": 0}, lambda x: x.sum(1)),
    ("ReduceSum", 11, [X], {}, lambda x: x.sum(keepdims=True)),
    ("ReduceMean", 13, [X], {"axes": [0, -1]}, lambda x: x.mean((0, 2), keepdims=True)),
    ("ReduceMax", 1, [X], {"axes": [2], "keepdims": 0}, lambda x: x.max(2)),
    ("ReduceLogSumExp", 11, [X], {"axes": [1]}, None),
    ("Gemm", 6, [X[0], data(4, 5), data(5)], {"broadcast": 1}, lambda a, b, c: a @ b + c),
    ("TopK", 1, [X], {"k": 2}, lambda x: -np.sort(-x, -1)[..., :2]),
    ("Softmax", 11, [X], {}, None),
    ("Softmax", 1, [X], {"axis": 2}, None),
    ("LogSoftmax", 9, [X], {"axis": 0}, None),
    ("Hardmax", 11, [X], {"axis": -2}, None),
    ("Concat", 1, [X, X], {}, lambda x, y: np.concatenate([x, y], 1)),
    ("Reshape", 1, [X], {"shape": [4, -1]}, lambda x: x.reshape(4, 6)),
    ("Squeeze", 11, [X[:, None]], {"axes": [1]}, lambda x: x.squeeze(1)),
    ("Squeeze", 1, [X[None, :, None]], {}, np.squeeze),
    ("Unsqueeze", 1, [X], {"axes": [0, 4]}, lambda x: x[None, ..., None]),
    ("Slice", 1, [X], {"starts": [1, -2], "ends": [9, -1], "axes": [0, 2]}, lambda x: x[1:9, :, -2:-1]),
    ("Slice", 1, [X], {"starts": [0, 1], "ends": [1, 2]}, lambda x: x[0:1, 1:2]),
    ("Split", 2, [X], {"axis": 2, "split": [1, 3]}, lambda x: x[..., :1]),
    ("Split", 11, [X], {"axis": 2}, lambda x: x[..., :2]),
    ("Pad", 1, [X], {"paddings": [0, 0, 1, 0, 1, 0], "value": 2.0}, None),
    ("Pad", 2, [X], {"pads": [0, 0, 1, 0, 1, 0], "value": 2.0}, None),
    ("Pad", 2, [X], {"pads": [0, 1, 1, 0, 0, 1], "mode": "reflect"}, None),
    ("Tile", 1, [X, np.float32(3), np.float32(1)], {}, lambda x, *_: np.tile(x, (1, 3, 1))),
    ("Scatter", 9, [X, np.array([[[1]]]), data(1, 1, 1)], {"axis": 1}, None),
    ("Upsample", 1, [IMAGE], {"height_scale": 2.0, "width_scale": 3.0}, lambda x: x.repeat(2, 2).repeat(3, 3)),
    ("Upsample", 7, [IMAGE], {"scales": [1.0, 1.0, 2.0, 1.5]}, None),
    ("Upsample", 9, [IMAGE, np.array([1, 1, 2, 2], F32)], {"mode": "linear"}, None),
    ("Resize", 10, [IMAGE, np.array([1, 1, 2, 0.5], F32)], {}, None),
    ("Resize", 10, [IMAGE, np.array([1, 1, 0.6, 0.6], F32)], {}, None),
    ("Resize", 10, [IMAGE, np.array([1, 1, 0.5, 1.7], F32)], {"mode": "linear"}, None),
    ("Resize", 11, [IMAGE, np.zeros(0, F32), np.array([1, 1, 2, 1], F32)], {}, None),
    ("DepthToSpace", 1, [data(1, 8, 2, 3)], {"blocksize": 2}, None),
    ("BatchNormalization", 7, [IMAGE, *POSITIVE[:2, :2, 0].repeat(2, 0)], {}, None),
    ("BatchNormalization", 1, [IMAGE, *POSITIVE[:2, :2, 0].repeat(2, 0)], {"consumed_inputs": [0], "is_test": 1}, "7"),
    ("BatchNormalization", 7, [X, *np.stack([POSITIVE[0]] * 4)], {"spatial": 0}, normalised),
    ("Dropout", 1, [X], {"is_test": 1}, lambda x: x),
    ("Dropout", 7, [X], {"ratio": 0.5}, lambda x: x),
    ("Dropout", 10, [X], {}, lambda x: x),
    ("LpPool", 1, [IMAGE], {"kernel_shape": [2, 2], "p": 2.0}, "2"),
    ("GlobalLpPool", 1, [IMAGE], {"p": 1.0}, lambda x: np.abs(x).sum((2, 3), keepdims=True)),
    ("GridSample", 16, [IMAGE, np.tanh(data(1, 3, 2, 2))], {"mode": "bicubic"}, None),
    ("RoiAlign", 10, [IMAGE, np.array([[0, 0, 3, 3]], F32), np.zeros(1, np.int64)], {"output_height": 2}, None),
    ("DFT", 17, [data(2, 5, 3, 1)], {"axis": 2}, None),
    ("InstanceNormalization", 1, [IMAGE, data(2), data(2)], {"consumed_inputs": [0]}, "6"),
    ("Affine", 1, [X], {"alpha": 2.0, "beta": 1.0}, lambda x: 2 * x + 1),
    ("ScaledTanh", 1, [X], {"alpha": 2.0, "beta": 0.5}, lambda x: 2 * np.tanh(0.5 * x)),
    ("ParametricSoftplus", 1, [X], {"alpha": 2.0, "beta": 0.5}, lambda x: 2 * np.log(np.exp(0.5 * x) + 1)),
    ("Scale", 1, [X], {"scale": 2.0}, lambda x: 2 * x),
    (
        "ImageScaler",
        1,
        [IMAGE],
        {"scale": 2.0, "bias": [1.0, -1.0]},
        lambda x: 2 * x + np.array([1, -1])[:, None, None],
    ),
]


def expected_of(case: tuple[str, int, list[Any], dict[str, Any], Any], proto: onnx.ModelProto) -> Any:
    op, _, inputs, attributes, expected = case
    if callable(expected):
        return expected(*inputs)
    if expected is not None:  # ONNX Runtime has that later operator set; the results are the same
        old = ("consumed_inputs", "is_test")
        attributes = {k: int(v) if k == "p" else v for k, v in attributes.items() if k not in old}
        proto = old_model(op, max(int(expected), 7), inputs, attributes, (), 1, rank=True)
    if op == "Pad":
        attributes = {"pads": attributes.get("paddings"), **attributes}
        attributes.pop("paddings", None)
        proto = old_model(op, 7, inputs, attributes, (), 1, rank=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {v.name: inputs[int(v.name[1:])] for v in session.get_inputs()})[0]


@pytest.mark.parametrize("rank", [True, False], ids=["ranked", "unknown"])
@pytest.mark.parametrize("case", CASES, ids=[f"{c[0]}-{c[1]}-{i}" for i, c in enumerate(CASES)])
def test_results_stay(case: tuple[str, int, list[Any], dict[str, Any], Any], rank: bool):
    op, version, inputs, attributes, _ = case
    weights = {"Resize": (1, 2), "Upsample": (1,)}.get(op, ())
    weights = tuple(i for i in weights if i < len(inputs))
    outputs = 2 if op in ("Split", "TopK") else 1
    proto = old_model(op, version, inputs, attributes, weights, outputs, rank)
    expected = expected_of(case, old_model(op, version, inputs, attributes, weights, outputs, rank=True))
    for optimise in (False, True):
        graph = read_graph(proto, optimise=optimise)
        assert is_newest(graph)
        result = evaluate(graph, proto, inputs)[0]
        assert result.dtype == (np.bool_ if expected.dtype == np.bool_ else result.dtype)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_a_mask_of_dropout_has_the_type_of_the_data():
    proto = old_model("Dropout", 7, [X], {"ratio": 0.5}, (), 2, rank=True)
    graph = read_graph(proto)
    y, mask = evaluate(graph, proto, [X])
    np.testing.assert_array_equal(y, X)
    assert mask.dtype == np.float32
    assert (mask == 1).all()


def test_group_normalization_per_group():
    x, scale, bias = data(2, 6, 4), data(3), data(3)
    graph = read_graph(old_model("GroupNormalization", 18, [x, scale, bias], {"num_groups": 3}, (1, 2), 1, rank=True))
    result = evaluate_graph(graph, {"i0": x})["o0"]
    grouped = x.reshape(2, 3, -1)
    normal = (grouped - grouped.mean(-1, keepdims=True)) / np.sqrt(grouped.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(result, (normal * scale[:, None] + bias[:, None]).reshape(x.shape), rtol=1e-4, atol=1e-5)


def test_scan_over_a_batch():
    """Scan-8 sums along axis 1 of each sample."""
    add = helper.make_node("Add", ["s", "x"], ["s2"])
    out = helper.make_node("Identity", ["s2"], ["y"])
    body = helper.make_graph([add, out], "b", [info("s", (2,)), info("x", (2,))], [info("s2", (2,)), info("y", (2,))])
    node = helper.make_node("Scan", ["", "init", "xs"], ["last", "ys"], body=body, num_scan_inputs=1)
    inputs = [info("init", (3, 2)), info("xs", (3, 4, 2))]
    graph = helper.make_graph([node], "g", inputs, [info("last", (3, 2)), info("ys", (3, 4, 2))])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=4)
    init, xs = data(3, 2), data(3, 4, 2)
    read = read_graph(proto)
    assert is_newest(read)
    results = evaluate_graph(read, {"init": init, "xs": xs})
    np.testing.assert_allclose(results["ys"], init[:, None] + xs.cumsum(1), rtol=1e-5)
    np.testing.assert_allclose(results["last"], init + xs.sum(1), rtol=1e-5)


def test_label_encoder_in_both_directions():
    node = helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", classes_strings=["a", "b"])
    for kind, x, expected in ((8, ["b", "z"], [1, -1]), (7, [1, 5], ["b", "_Unused"])):
        declared = [info("x", (2,), kind)], [info("y", (2,), 15 - kind)]
        graph = helper.make_graph([node], "g", *declared)
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 1)], ir_version=8)
        array = np.array(x, dtype=object if kind == 8 else np.int64)
        assert list(evaluate_graph(read_graph(proto), {"x": array})["y"]) == expected


def test_what_cannot_be_upgraded_keeps_its_version():
    scales = np.array([1, 1, 2, 2], F32)
    mode = {"coordinate_transformation_mode": "tf_half_pixel_for_nn"}
    (node,) = read_graph(old_model("Resize", 11, [IMAGE, np.zeros(0, F32), scales], mode, (1, 2), 1, rank=True)).nodes
    assert node.version == 11
    with pytest.raises(ModelError, match="element type"):
        read_graph(old_model("Cast", 1, [X], {"to": "FLOAT7"}, (), 1, rank=True))


HARMLESS = {
    ("Gemm", 11): "an operand may be omitted",
    ("OptionalHasElement", 18): "an operand may be omitted",
    ("GRU", 3): "the default direction was misspelt, and is seen to by the rule of 7; a setting with the old meaning",
    ("Clip", 6): "bounds that were not there are still not there",
    ("BatchNormalization", 7): "seen to by the rule of 9",
    ("Dropout", 7): "seen to by the rule of 12",
    ("PRelu", 6): "seen to by the rule of 7",
    **{(op, 6): "seen to by the rule of 7" for op in ("Add", "Sub", "Mul", "Div")},
    **{(op, v): "Constant nodes are read into constants" for op in ("Constant",) for v in (11, 12)},
}


def changes() -> list[tuple[str, str, int]]:
    """Every operator and version whose schema took away or changed an attribute, or moved its operands."""
    history: dict[tuple[str, str], dict[int, Any]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain in ("", "ai.onnx.ml"):
            history.setdefault((schema.domain, schema.name), {})[schema.since_version] = schema
    found = []
    for (domain, op), versions in sorted(history.items()):
        ordered = sorted(versions)
        for before, after in itertools.pairwise(ordered):
            if not versions[after].deprecated and differs(versions[before], versions[after]):
                found.append((domain, op, after))
    return found


def differs(old: Any, new: Any) -> bool:
    for name, attribute in old.attributes.items():
        other = new.attributes.get(name)
        if other is None or other.type != attribute.type or other.default_value != attribute.default_value:
            return True
    kinds = [[i.option for i in schema.inputs] for schema in (old, new)]
    return kinds[0] != kinds[1][: len(kinds[0])] or new.min_input > old.min_input


@pytest.mark.parametrize(("domain", "op", "version"), changes())
def test_every_change_of_a_form_has_a_rule(domain: str, op: str, version: int):
    assert last_change(domain, op, version) == version or (op, version) in HARMLESS


def test_deprecated_operators_have_another_name():
    kept = {"TreeEnsembleClassifier", "TreeEnsembleRegressor"}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.deprecated and schema.domain in ("", "ai.onnx.ml") and schema.name not in kept:
            assert last_change(schema.domain, schema.name, 2**30) > 1, schema.name


SHIPPED = Path(onnx.__file__).parent / "backend" / "test" / "data"
SUITES = sorted(p for kind in ("pytorch-operator", "pytorch-converted") for p in glob.glob(f"{SHIPPED}/{kind}/*"))


def load(path: str) -> Any:
    return numpy_helper.to_array(onnx.TensorProto.FromString(Path(path).read_bytes()))


@pytest.mark.parametrize("folder", SUITES, ids=[Path(p).name for p in SUITES])
def test_models_of_old_operator_sets(folder: str):
    """ONNX's own exported models, of operator sets from 6 on: same results with and without passes."""
    sets = sorted(glob.glob(f"{folder}/test_data_set_*"))
    proto = onnx.load(f"{folder}/model.onnx")
    for optimise, case in itertools.product((False, True), sets):
        graph = read_graph(proto, optimise=optimise)
        arrays = [load(f"{case}/input_{i}.pb") for i in range(len(glob.glob(f"{case}/input_*.pb")))]
        results = evaluate_graph(graph, {v.name: a for v, a in zip(graph.inputs, arrays, strict=False)})
        for index, output in enumerate(graph.outputs):
            np.testing.assert_allclose(results[output.name], load(f"{case}/output_{index}.pb"), rtol=1e-3, atol=1e-5)
