"""Recorded signals, replayed: what the decision makes of them.

Lines of {"now", "current", "signals"}, one a second: see traces/README.md for where they are from.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deployments.autoscaling.aims import Aims, Bounds
from deployments.autoscaling.decision import Change, Memory, View, decide
from deployments.autoscaling.signals import CellSignals

TRACES = Path(__file__).parent / "traces"
BOUNDS = {"target": Bounds(1, 3), "draft": Bounds(0, 2)}


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (TRACES / name).read_text().splitlines()]


def replayed(name: str, aims: Aims) -> list[tuple[float, Change]]:
    """With the numbers of the trace: those that there were, whatever is decided here."""
    memory, changes = Memory(), []
    for line in lines(name):
        view = View(
            current=line["current"],
            bounds=BOUNDS,
            cells={0: CellSignals(**line["signals"])},
            num_requests=0.0,
        )
        decision = decide(view, aims, memory, line["now"])
        memory = decision.memory
        changes += [(line["now"], change) for change in decision.changes]
    return changes
