"""Where the time of a run goes: steps and kernels, as lines for people and as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opweave.plans import Control, Stage, Transfer
from opweave.provider import KernelTime
from opweave.report import seconds_text, table
from opweave.scheduler import StepTime


def profile_lines(steps: Sequence[StepTime], peaks: Mapping[str, float]) -> list[str]:
    """One table of kernels a stage, the dearest first. `peaks` are float32 operations a second by device."""
    whole = sum(s.seconds for s in steps)
    lines: list[str] = []
    for step in steps:
        lines.append(
            f"{_title(step)}: {seconds_text(step.seconds)}, {_share(step.seconds, whole)} of the run{_rate(step, peaks)}"
        )
        if step.kernels:
            lines += table([_HEAD, *(_row(k, step.seconds, _peak(step, peaks)) for k in _dearest(step.kernels))])
    return lines


def profile_json(steps: Sequence[StepTime], peaks: Mapping[str, float]) -> list[dict[str, Any]]:
    """The same as data, kernels in the order they ran."""
    return [
        {
            "step": _title(step),
            "seconds": step.seconds,
            "peak_flops_per_second": _peak(step, peaks) or None,
            "kernels": [
                {
                    "node": k.node,
                    "operator": k.operator,
                    "seconds": k.seconds,
                    "native": k.native,
                    "flops": k.flops,
                    "bytes": k.nbytes,
                    "algorithm": k.algorithm,
                }
                for k in step.kernels
            ],
        }
        for step in steps
    ]


_HEAD = ("seconds", "share", "Gflop/s", "of peak", "GB/s", "operator", "algorithm", "node")


def _dearest(kernels: Sequence[KernelTime]) -> list[KernelTime]:
    return sorted(kernels, key=lambda k: -k.seconds)


def _row(kernel: KernelTime, whole: float, peak: float) -> tuple[str, ...]:
    rate = kernel.flops / kernel.seconds if kernel.seconds else 0.0
    return (
        seconds_text(kernel.seconds),
        _share(kernel.seconds, whole),
        f"{rate / 1e9:.1f}" if rate else "",
        f"{rate / peak:.0%}" if rate and peak else "",
        f"{kernel.nbytes / kernel.seconds / 1e9:.1f}" if kernel.nbytes and kernel.seconds else "",
        kernel.operator,
        kernel.algorithm if kernel.native else "reference, outside the core",
        kernel.node,
    )


def _rate(step: StepTime, peaks: Mapping[str, float]) -> str:
    flops, peak = sum(k.flops for k in step.kernels), _peak(step, peaks)
    if not flops or not peak:
        return ""
    return f"; {flops / 1e9:.3g} Gflop at {flops / step.seconds / peak:.0%} of a peak of {peak / 1e9:.0f} Gflop/s"


def _peak(step: StepTime, peaks: Mapping[str, float]) -> float:
    return peaks.get(step.step.device, 0.0) if isinstance(step.step, Stage) else 0.0


def _share(seconds: float, whole: float) -> str:
    return f"{seconds / whole:.1%}" if whole else "0%"


def _title(step: StepTime) -> str:
    match step.step:
        case Stage(index=index, device=device):
            return f"stage {index} on {device}"
        case Transfer(value=value, source=source, target=target):
            return f"transfer of {value.name} from {source} to {target}"
        case Control(node=node):
            return f"control flow {node.name}"
