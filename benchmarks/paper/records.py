"""What was measured, as JSON: one file a table, one run in it per name."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.harness.commands import write_json
from benchmarks.harness.machine import cpu_name, git

RESULTS = Path("benchmarks/results/paper")

Row = dict[str, Any]
"""One measured cell: its coordinates (`algorithm`, `batch_size` ...) and its figures; or, with
`not_run`, the reason why there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Rows that one command measured together."""

    name: str
    """Pair, dtype and device; a newer run of the same name takes its place."""
    commit: str
    machine: dict[str, Any]
    settings: dict[str, Any]
    rows: list[Row] = field(default_factory=list)


def load_runs(folder: Path, table: str) -> list[Run]:
    """In the order of their names; none where the table was never measured."""
    path = folder / f"{table}.json"
    if not path.exists():
        return []
    return [Run(**run) for run in json.loads(path.read_text())["runs"]]


def save_run(folder: Path, table: str, run: Run) -> Path:
    """Put the run into the table's file, in place of an older one of its name."""
    others = [other for other in load_runs(folder, table) if other.name != run.name]
    runs = sorted([*others, run], key=lambda each: each.name)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{table}.json"
    write_json({"table": table, "runs": [asdict(each) for each in runs]}, path)
    return path


def current_commit() -> str:
    """The checked out commit; `+` behind it when the engine was changed since."""
    is_changed = bool(git("status", "--porcelain", "specdec_core"))
    return git("rev-parse", "--short", "HEAD") + "+" * is_changed or "unknown"


def describe_machine(device: str) -> dict[str, Any]:
    is_cuda = device != "cpu" and torch.cuda.is_available()
    return {
        "device": torch.cuda.get_device_name() if is_cuda else f"CPU, {cpu_name()}",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load_average": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
