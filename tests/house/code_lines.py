"""Count lines of code: without docstrings, comments and blank lines.

python -m tests.house.code_lines
"""

from __future__ import annotations

import ast
import subprocess
from collections import Counter
from pathlib import Path

from tests.house.prose import string_of

ROOT = Path(__file__).parents[2]
PARTS = {
    "product": ("specdec_core", "deployments"),
    "manifests": ("k8s",),
    "benchmarks": ("benchmarks",),
    "tests": ("tests",),
}


def code_lines(source: str) -> int:
    """Return the number of lines that hold code. Attribute docstrings are no code."""
    tree = ast.parse(source)
    text = {line for node in ast.walk(tree) for line in _string_lines(node)}
    lines = source.splitlines()
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") and number not in text
        for number, line in enumerate(lines, start=1)
    )


def _string_lines(node: ast.AST) -> range:
    """Return the lines of a statement that is a string alone."""
    if isinstance(node, ast.Expr) and string_of(node.value):
        return range(node.lineno, (node.end_lineno or node.lineno) + 1)
    return range(0)


def counted() -> Counter[str]:
    """Return the lines of code of each part, in files that git knows."""
    found: Counter[str] = Counter()
    for part, folders in PARTS.items():
        listed = subprocess.run(
            ["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True
        )
        for name in listed.stdout.split():
            if name.endswith(".py") and not name.endswith(("_pb2.py", "_pb2_grpc.py")):
                found[part] += code_lines((ROOT / name).read_text())
    return found


if __name__ == "__main__":
    for part, number in counted().items():
        print(f"{part}: {number:,} lines of code")
