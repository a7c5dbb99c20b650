"""The command line in process: what it prints, writes and returns, and one clear line for every fault."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_models
import pytest
from onnx import TensorProto, helper
from opweave.cli import main
from opweave.plugins import hookimpl, plugin_manager
from opweave.testing import Behaviour, NullProvider, SimProvider, registered

X = np.random.default_rng(0).normal(size=(1, 2, 5, 5)).astype(np.float32)


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.onnx"
    onnx.save(onnx_models.convolution(), path)
    return str(path)


@pytest.fixture
def sim() -> Iterator[None]:
    free = Behaviour(takes={"Conv", "Gemm"}, seconds=0.0, launch=0.0, link_latency=0.0, link_bandwidth=1e18)
    with registered(SimProvider(free)):
        yield


def json_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """What a command that goes well prints as JSON."""
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def fault_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line of a command that is used wrongly."""
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("opweave: ")
    return line


@pytest.mark.usefixtures("sim")
def test_devices_lists_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices"]) == 0
    text = capsys.readouterr().out
    assert "sim:0" in text
    assert "cpu" in text
    listed = {d["id"]: d for d in json_of(capsys, "devices")["devices"]}
    assert listed["sim:0"]["kind"] == "npu"
    assert listed["cpu"]["flops_per_second"]["float32"] > 0


def test_devices_says_why_the_others_are_absent(capsys: pytest.CaptureFixture[str]) -> None:
    newer = NullProvider(name="newer")
    newer.api_version = (9, 0)
    manager = plugin_manager()
    known = len(manager.broken)
    manager.register(_Plugin(newer), "a newer plugin")
    try:
        with registered(NullProvider(Behaviour(unavailable="no card in the slot"))):
            assert main(["devices"]) == 0
            text = capsys.readouterr().out
            absent = {a["name"]: a["reason"] for a in json_of(capsys, "devices")["absent"]}
    finally:
        del manager.broken[known:]
    assert "no card in the slot" in text
    assert "no card in the slot" in absent["null"]
    assert "contract 9.0, this Opweave has 1." in absent["newer"]


class _Plugin:
    def __init__(self, provider: NullProvider) -> None:
        self.provider = provider

    @hookimpl
    def opweave_providers(self) -> list[NullProvider]:
        return [self.provider]


@pytest.mark.usefixtures("sim")
def test_plan_shows_stages_transfers_and_reasons(capsys: pytest.CaptureFixture[str], model: str) -> None:
    assert main(["plan", model, "--devices", "sim:0,cpu"]) == 0
    text = capsys.readouterr().out
    assert "sim:0" in text
    assert "told not to take" in text
    plan = json_of(capsys, "plan", model, "--devices", "sim:0,cpu")
    assert plan["devices"] == ["sim:0", "cpu"]
    assert {s["device"] for s in plan["steps"]} == {"sim:0", "cpu"}
    staged = [n for s in plan["steps"] for n in s.get("nodes", [])]
    assert sorted(staged) == sorted(p["node"] for p in plan["placements"])


@pytest.mark.usefixtures("sim")
def test_pins_hold(capsys: pytest.CaptureFixture[str], model: str) -> None:
    pinned = json.dumps(json_of(capsys, "plan", model, "--devices", "sim:0", "--pin", "Gemm=cpu"))
    assert "pinned" in pinned


@pytest.mark.usefixtures("sim")
@pytest.mark.parametrize("devices", ["cpu", "sim:0,cpu"])
def test_run_reads_writes_repeats_and_checks(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, model: str, devices: str
) -> None:
    np.save(tmp_path / "x.npy", X)
    arguments = ["run", model, "--devices", devices, "--input", f"x={tmp_path / 'x.npy'}", "--repeat", "3", "--check"]
    report = json_of(capsys, *arguments, "--output", str(tmp_path / "out"))
    (output,) = report["outputs"]
    assert output["check"]["within"]
    assert report["seconds"]["runs"] == 3
    y = np.load(output["file"])
    assert y.shape == (1, 4)
    np.testing.assert_allclose(y.sum(), 1, rtol=1e-5)
    assert main(arguments) == 0
    assert "ok, largest error" in capsys.readouterr().out


@pytest.mark.usefixtures("sim")
def test_profile_names_every_kernel(capsys: pytest.CaptureFixture[str], model: str) -> None:
    assert main(["run", model, "--devices", "cpu", "--profile"]) == 0
    text = capsys.readouterr().out
    assert "stage 0 on cpu" in text
    assert "opweave.FusedConv" in text
    assert "of a peak of" in text
    (stage,) = json_of(capsys, "run", model, "--devices", "cpu", "--profile")["profile"]
    conv = next(k for k in stage["kernels"] if k["operator"] == "opweave.FusedConv")
    assert conv["flops"] == 2 * (1 * 3 * 5 * 5) * (2 * 3 * 3)
    assert conv["bytes"] == 4 * (2 * 25 + 3 * 25 + 3 * 2 * 9 + 3)
    assert sum(k["seconds"] for k in stage["kernels"]) <= stage["seconds"]
    steps = json_of(capsys, "run", model, "--devices", "sim:0,cpu", "--profile")["profile"]
    assert [s["step"].split()[0] for s in steps].count("transfer") >= 2
    assert any("sim:0" in s["step"] and s["step"].startswith("stage") for s in steps)


def test_run_makes_up_inputs(capsys: pytest.CaptureFixture[str], model: str) -> None:
    assert json_of(capsys, "run", model, "--devices", "cpu", "--threads", "1")["outputs"][0]["type"] == "float32[1, 4]"


def test_bench_times_each_engine_in_its_own_process(capsys: pytest.CaptureFixture[str], model: str) -> None:
    few = ["--devices", "cpu", "--rounds", "1", "--seconds", "0"]
    times = json_of(capsys, "bench", model, *few, "--against", "onnxruntime")["seconds"]
    assert list(times) == ["opweave", "onnxruntime"]
    assert min(times.values()) > 0
    assert "another" in fault_of(capsys, "bench", model, *few, "--against", "another")
    assert "absent.onnx" in fault_of(capsys, "bench", "absent.onnx", *few)


@pytest.mark.usefixtures("sim")
def test_a_fault_while_running_exits_with_one(capsys: pytest.CaptureFixture[str], model: str) -> None:
    with registered(SimProvider(Behaviour(fails={"Softmax"}), name="faulty")):
        assert main(["run", model, "--devices", "faulty:0", "--pin", "Softmax=faulty:0"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "told to fail" in line
    assert "faulty:0" in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--devices", "tpu:0"], ["tpu:0", "cpu"]),
        (["--shape", "nobody=1x2"], ["nobody", "x"]),
        (["--shape", "x=1xx2"], ["1xx2"]),
        (["--shape", "x=1x2x7x5"], ["x"]),
        (["--pin", "Conv=tpu:0"], ["tpu:0"]),
        (["--pin", "nonsense"], ["nonsense"]),
    ],
)
@pytest.mark.parametrize("command", ["plan", "run"])
def test_wrong_use_is_one_clear_line(
    capsys: pytest.CaptureFixture[str], model: str, command: str, arguments: list[str], words: list[str]
) -> None:
    line = fault_of(capsys, command, model, *arguments)
    assert all(w in line for w in words)


def test_inputs_that_cannot_be_read_or_do_not_fit(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, model: str
) -> None:
    (tmp_path / "torn.npy").write_bytes(b"\x93NUMPY")
    np.save(tmp_path / "wide.npy", np.zeros((1, 2, 5, 6), np.float32))
    for name in ("absent.npy", "torn.npy", "wide.npy"):
        assert "'x'" in fault_of(capsys, "run", model, "--input", f"x={tmp_path / name}")
    assert "repeat" in fault_of(capsys, "run", model, "--repeat", "0")


@pytest.mark.parametrize("content", [None, b"", b"not a model", b"\x08\x0a\x12"])
def test_models_that_cannot_be_read(capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "other.onnx"
    if content is not None:
        path.write_bytes(content)
    assert "other.onnx" in fault_of(capsys, "plan", str(path))


@pytest.mark.parametrize("command", ["run", "bench"])
def test_sizes_that_were_made_up_are_told(capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[1, 1, H, W] image, float[1, 1, 3, 3] k) => (float[1, 1, P, Q] y) { y = Conv(image, k) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    assert main([command, str(tmp_path / "m.onnx")]) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert "give --shape image=" in line
    quick = [] if command == "run" else ["--rounds", "1", "--seconds", "0.01"]
    assert main([command, str(tmp_path / "m.onnx"), "--shape", "image=1x1x5x5", *quick]) == 0


def test_an_operator_that_nobody_has_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Nothing", ["x"], ["y"], domain="org.example")], "g", [values[0]], [values[1]]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("org.example", 1)]), tmp_path / "m.onnx")
    assert main(["plan", str(tmp_path / "m.onnx"), "--devices", "cpu"]) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert "org.example.Nothing" in line


def test_debugging_raises_the_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPWEAVE_DEBUG", "1")
    with pytest.raises(Exception, match=r"absent\.onnx"):
        main(["plan", str(tmp_path / "absent.onnx")])
