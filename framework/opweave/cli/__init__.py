"""The command line: `opweave devices | plan | run | bench`.

Exit codes: 0 fine, 1 the thing asked for failed, 2 wrong usage or unreadable input. A fault prints one line on the error
stream; with OPWEAVE_DEBUG set it is raised.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from opweave import __version__, settings
from opweave.errors import OpweaveError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code."""
    parser = _parser()
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(given, argparse.Namespace(given=given))
    try:
        return int(options.command(options))
    except OpweaveError as error:
        if settings.debug():
            raise
        print(f"opweave: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    from opweave.cli import bench, devices, plan, run

    parser = argparse.ArgumentParser("opweave", description="Runs one ONNX model across every device a machine has.")
    parser.add_argument("--version", action="version", version=f"opweave {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for module in (devices, plan, run, bench):
        name = module.__name__.rpartition(".")[2]
        command = commands.add_parser(name, help=module.HELP, description=module.HELP)
        module.arguments(command)
        command.set_defaults(command=module.main)
    return parser
