"""`opweave devices`: what there is, and why what is absent is absent."""

from __future__ import annotations

import argparse
import json
from typing import Any

from opweave.plugins import plugin_manager
from opweave.provider import DeviceInfo
from opweave.report import bytes_text, table

HELP = "list the devices of this machine, and why others are absent"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def main(options: argparse.Namespace) -> int:
    manager = plugin_manager()
    survey = manager.survey()
    present = [f.device for f in survey if f.device is not None]
    absent = [(f.provider.name, f.reason, f.hint) for f in survey if f.device is None]
    absent += [(b.name, b.reason, b.hint) for b in manager.broken]
    if options.json:
        gone = [{"name": n, "reason": r, "hint": h} for n, r, h in absent]
        print(json.dumps({"devices": [_json(d) for d in present], "absent": gone}, indent=2))
        return 0
    rows = [("device", "kind", "memory", "float32", "description")]
    rows += [(d.id, d.kind.value, bytes_text(d.memory), _rate(d), d.description) for d in present]
    print("\n".join(table(rows)))
    if absent:
        print("\nabsent:")
        for name, reason, hint in absent:
            print(f"  {name}: {reason}" + (f"; {hint}" if hint else ""))
    return 0


def _rate(device: DeviceInfo) -> str:
    from opweave.dtypes import DType

    rate = device.flops.get(DType.FLOAT32)
    return f"{rate / 1e9:.3g} Gflop/s" if rate else "?"


def _json(device: DeviceInfo) -> dict[str, Any]:
    return {
        "id": device.id,
        "kind": device.kind.value,
        "description": device.description,
        "domain": device.domain,
        "memory_bytes": device.memory,
        "flops_per_second": {str(k): v for k, v in device.flops.items()},
        "bytes_per_second": device.bandwidth,
        "launch_seconds": device.launch,
        "features": sorted(device.features),
    }
