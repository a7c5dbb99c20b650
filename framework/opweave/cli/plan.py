"""`opweave plan`: what would run where and why, before anything is compiled."""

from __future__ import annotations

import argparse
import json

from opweave.cli.shared import model_arguments, pairs, shapes

HELP = "show which node would run on which device, and why"


def arguments(parser: argparse.ArgumentParser) -> None:
    model_arguments(parser)


def main(options: argparse.Namespace) -> int:
    from opweave import api

    plan = api.plan(
        options.model,
        options.devices,
        shapes(options.shape),
        optimise=not options.no_optimise,
        pins=pairs(options.pin, "--pin"),
    )
    print(json.dumps(plan.to_json(), indent=2) if options.json else plan)
    return 0
