"""Sizes of functions and files: fails where a function has over 80 lines or a file over 600, prints the median."""

from __future__ import annotations

import ast
import statistics
import sys
from pathlib import Path

FUNCTION, FILE = 80, 600
ROOTS = ("framework", "partitioner", "providers", "plugins_example")


def main() -> int:
    lengths, faults = [], []
    for path in sorted(p for root in ROOTS for p in Path(root).rglob("*.py")):
        text = path.read_text()
        if text.count("\n") > FILE:
            faults.append(f"{path}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lengths.append(node.end_lineno - node.lineno + 1)
                if lengths[-1] > FUNCTION:
                    faults.append(f"{path}:{node.lineno} {node.name}: {lengths[-1]} lines")
    for path in sorted(Path("providers").rglob("*.cpp")):
        lines = path.read_text().count("\n")
        if lines > FILE:
            faults.append(f"{path}: {lines} lines")
    share = sum(n <= 50 for n in lengths) / len(lengths)
    print(f"{len(lengths)} functions, median {statistics.median(lengths):.0f} lines, {share:.1%} within 50")
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
