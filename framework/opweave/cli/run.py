"""`opweave run`: runs a model on given or made-up inputs; times it; checks it against the reference."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opweave.cli.shared import guessing, loaded, made_up, model_arguments, shapes
from opweave.errors import InputError, UsageError
from opweave.profiles import profile_json, profile_lines
from opweave.report import seconds_text, table

if TYPE_CHECKING:
    from opweave.session import Session

HELP = "run a model on given or made-up inputs"
RTOL, ATOL = 1e-3, 1e-4  # of --check: share of the output's range, and absolute


def arguments(parser: argparse.ArgumentParser) -> None:
    model_arguments(parser)
    parser.add_argument(
        "--input", action="append", default=[], metavar="NAME=FILE.npy", help="an input; others are made up"
    )
    parser.add_argument("--output", metavar="DIR", help="write every output to DIR as .npy")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="run N times and print the times")
    parser.add_argument("--threads", type=int, help="threads of a call on the cpu")
    parser.add_argument("--profile", action="store_true", help="print the time of every kernel, the dearest first")
    parser.add_argument("--check", action="store_true", help="compare every output with the reference implementation")


def main(options: argparse.Namespace) -> int:
    if options.repeat < 1:
        raise UsageError(f"--repeat {options.repeat}", "it must be at least 1")
    session = loaded(options)
    wanted = shapes(options.shape)
    session.plan_for(wanted)  # names the shapes that do not fit
    missing = {n: t for n, t in session.inputs.items() if n not in _names(options.input)}
    feeds = made_up(missing, wanted) | _files(options.input, session.inputs)
    with guessing(missing, wanted):
        results, times = _runs(session, feeds, options.repeat)
    written = _write(options.output, results) if options.output else {}
    errors = _check(options.model, feeds, results) if options.check else None
    report = _report(results, times, written, errors)
    profile = session.profile(feeds) if options.profile else []
    peaks = {d: session.peak(d) for d in session.devices} if options.profile else {}
    if options.json:
        print(json.dumps(report | ({"profile": profile_json(profile, peaks)} if profile else {}), indent=2))
    else:
        print("\n".join([_text(report, session.plan), *profile_lines(profile, peaks)]))
    return 1 if errors is not None and any(not e["within"] for e in errors.values()) else 0


def _runs(session: Session, feeds: Mapping[str, Any], count: int) -> tuple[dict[str, Any], list[float]]:
    """The results of the last run, and the seconds of each."""
    times: list[float] = []
    results: dict[str, Any] = {}
    for _ in range(count):
        start = time.perf_counter()
        results = session.run(feeds)
        times.append(time.perf_counter() - start)
    return results, times


def _names(texts: list[str]) -> set[str]:
    return {t.partition("=")[0] for t in texts}


def _files(texts: list[str], types: Mapping[str, Any]) -> dict[str, Any]:
    import numpy as np

    feeds = {}
    for text in texts:
        name, _, file = text.partition("=")
        if name not in types or not file:
            raise UsageError(f"--input {text!r}", f"the model's inputs are {', '.join(types)}", "write NAME=FILE.npy")
        try:
            feeds[name] = np.load(file, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise InputError(
                f"input {name!r} from {file!r}", str(error), "give a file that numpy.save wrote"
            ) from error
    return feeds


def _write(folder: str, results: Mapping[str, Any]) -> dict[str, str]:
    import numpy as np

    where = Path(folder)
    written: dict[str, str] = {}
    try:
        where.mkdir(parents=True, exist_ok=True)
        for index, (name, value) in enumerate(results.items()):
            if not isinstance(value, np.ndarray) or value.dtype == object:
                continue
            plain = "".join(c if c.isalnum() or c in "-_." else "_" for c in name).lstrip(".")
            path = where / f"{plain or index}.npy"
            path = path if str(path) not in written.values() else where / f"{plain}_{index}.npy"
            np.save(path, value, allow_pickle=False)
            written[name] = str(path)
    except OSError as error:
        raise UsageError(f"--output {folder}", str(error), "name a folder that can be written") from error
    return written


def _check(model: str, feeds: Mapping[str, Any], results: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Largest absolute error of every output against the graph as read, by the reference implementation alone."""
    from opweave.read import read_graph
    from opweave.reference import evaluate_graph

    wanted = evaluate_graph(read_graph(model, optimise=False), feeds)
    return {n: _difference(results[n], w) for (n, _), w in zip(results.items(), wanted.values(), strict=True)}


def _difference(got: Any, want: Any) -> dict[str, Any]:
    import numpy as np

    if not isinstance(want, np.ndarray) or want.dtype.kind in "OUS":
        same = repr(got) == repr(want)
        return {"max_abs": None, "within": same}
    if got.shape != want.shape or got.dtype != want.dtype:
        return {"max_abs": float("inf"), "within": False}
    if want.size == 0:
        return {"max_abs": 0.0, "within": True}
    kind = np.complex128 if want.dtype.kind == "c" else np.float64
    a, b = got.astype(kind), want.astype(kind)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    largest = float(np.max(np.where(same, 0.0, np.abs(np.where(same, 0, a) - np.where(same, 0, b)))))
    finite = np.abs(b)[np.isfinite(b)]
    limit = ATOL + RTOL * float(np.ptp(finite)) if finite.size else ATOL
    return {"max_abs": largest, "within": bool(largest <= limit)}


def _report(
    results: Mapping[str, Any], times: list[float], written: Mapping[str, str], errors: Mapping[str, Any] | None
) -> dict[str, Any]:
    ordered = sorted(times)
    outputs = [
        {"name": n, **_summary(v)}
        | ({"file": written[n]} if n in written else {})
        | ({"check": errors[n]} if errors is not None else {})
        for n, v in results.items()
    ]
    seconds = {"first": times[0], "median": ordered[len(ordered) // 2], "least": ordered[0], "runs": len(times)}
    return {"outputs": outputs, "seconds": seconds}


def _summary(value: Any) -> dict[str, Any]:
    import numpy as np

    if not isinstance(value, np.ndarray):
        return {"type": type(value).__name__, "value": repr(value)[:60]}
    summary: dict[str, Any] = {"type": f"{value.dtype}{list(value.shape)}"}
    if value.size and value.dtype.kind not in "OUSc":
        wide = value.astype(np.float64)
        summary |= {"min": float(wide.min()), "max": float(wide.max()), "mean": float(wide.mean())}
    return summary


def _text(report: Mapping[str, Any], plan: Any) -> str:
    seconds = report["seconds"]
    rows = [("output", "type", "min", "max", "mean", "check")]
    for o in report["outputs"]:
        figures = [f"{o[k]:.6g}" if k in o else "" for k in ("min", "max", "mean")]
        check = o.get("check")
        told = "" if check is None else ("ok" if check["within"] else "DIFFERS")
        told += f", largest error {check['max_abs']:.3g}" if check is not None and check["max_abs"] is not None else ""
        rows.append((o["name"], o["type"] + (f" {o['value']}" if "value" in o else ""), *figures, told))
    stages = ", ".join(f"{s.device} ({len(s.graph.nodes)} nodes)" for s in plan.stages)
    lines = [f"ran on {stages or 'no device'}", *table(rows)]
    lines.append(
        f"first run {seconds_text(seconds['first'])}"
        + (
            f", median of {seconds['runs']} {seconds_text(seconds['median'])}, least {seconds_text(seconds['least'])}"
            if seconds["runs"] > 1
            else ""
        )
    )
    return "\n".join(lines)
