"""One JSON file for each step: written as the step goes, so that what is found survives it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class Status(StrEnum):
    RUNNING = "running"
    """Or interrupted, if nobody runs it: the next start runs it again."""
    DONE = "done"
    FAILED = "failed"
    OUT_OF_TIME = "out of time"
    SKIPPED = "skipped"


@dataclass(slots=True, kw_only=True)
class Result:
    """What a step found, and on what."""

    step: str
    limit_s: float
    environment: dict[str, str]
    asked: dict[str, str | bool | None]
    """The flags that the step looks at."""
    status: Status = Status.RUNNING
    reason: str = ""
    """Why it is not done."""
    seconds: float = 0.0
    cpu_s: float = 0.0
    """Of its process and those that it waited for; 0 where it was stopped."""
    facts: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def rows(self, table: str, **wanted: Any) -> list[dict[str, Any]]:
        """Those of a table that have these values."""
        rows = self.tables.get(table, [])
        return [row for row in rows if all(row.get(name) == wanted[name] for name in wanted)]

    def save(self, path: Path) -> None:
        """As a whole or not at all."""
        draft = path.with_suffix(".tmp")
        draft.write_text(json.dumps(asdict(self), indent=1, default=str) + "\n")
        os.replace(draft, path)


def path_of(folder: Path, step: str) -> Path:
    return folder / f"{step}.json"


def load(path: Path) -> Result | None:
    """None where there is no result, or none that can be read."""
    try:
        found = json.loads(path.read_text())
        return Result(**{**found, "status": Status(found["status"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


class StepSkippedError(Exception):
    """Raised by a step that cannot run here; its message says why."""


class Findings:
    """What a step writes to: every fact and every row is on disk when the call returns."""

    def __init__(self, path: Path, result: Result) -> None:
        self.result = result
        self._path = path

    def fact(self, name: str, value: Any) -> None:
        self.result.facts[name] = value
        self.save()

    def row(self, table: str, **figures: Any) -> None:
        self.result.tables.setdefault(table, []).append(figures)
        print(table, figures, flush=True)  # into the log of the step
        self.save()

    def save(self) -> None:
        self.result.save(self._path)
