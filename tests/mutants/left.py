"""What `make mutmut` leaves, against tests that it does not run.

    python -m tests.mutants.left --only token_logprobs tests/equivalence/test_prompt_logprobs.py

In the folder `mutants` that mutmut leaves behind. Prints the mutants that live on.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track

_LIMIT_S = 120.0
_LIVES = ("survived", "no tests")
_NOBODY = "nobody"
_PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0")


def main(
    tests: Annotated[list[str], typer.Argument(help="Files or node IDs.")],
    only: Annotated[str, typer.Option(help="Part of the mutants' names: a regular expression.")],
    jobs: Annotated[int, typer.Option(help="At a time.")] = 2,
) -> None:
    """Exit status 1 if any of them lives on."""
    if _is_killed(tests, _NOBODY):
        raise typer.BadParameter("they fail without any mutant", param_hint="TESTS")
    names = [name for name in _left() if re.search(only, name)]
    with ThreadPoolExecutor(jobs) as executor:
        verdicts = executor.map(partial(_is_killed, tests), names)
        killed = list(track(verdicts, description="mutants", total=len(names)))
    lives = [name for name, is_killed in zip(names, killed, strict=True) if not is_killed]
    print(*lives, f"{len(names) - len(lives)} of {len(names)} killed", sep="\n")
    raise typer.Exit(1 if lives else 0)


def _left() -> Iterator[str]:
    mutmut = Path(sys.executable).parent / "mutmut"
    done = subprocess.run([mutmut, "results"], capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        name, _, verdict = line.strip().partition(": ")
        if verdict in _LIVES:
            yield name


def _is_killed(tests: list[str], name: str) -> bool:
    """By a test that fails, or that never ends."""
    command = [sys.executable, *_PYTEST, *tests]
    environment = os.environ | {"MUTANT_UNDER_TEST": name, "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, cwd="mutants", env=environment, capture_output=True, timeout=_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


if __name__ == "__main__":
    typer.run(main)
