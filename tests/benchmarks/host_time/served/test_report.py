"""Tables and files have every part of every cell, and say that no GPU was measured."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

from benchmarks.host_time.served.parts import Part, Round
from benchmarks.host_time.served.report import NOTE, as_json, plot, tables
from benchmarks.host_time.served.waiting import CpuUse

_PARTS = {part: 0.0 for part in Part} | {Part.DEVICE: 7e-3, Part.WIRE: 1e-3}
_USE = {"target": CpuUse(2e-3, 1e-3), "coordinator": CpuUse(1e-3, 0.0)}


def _round(whole_s: float) -> Round:
    return Round(
        num_rounds=300, whole_s=whole_s, parts_s=_PARTS, use=_USE, drafted=8.0, accepted=4.0
    )


def test_a_file_has_milliseconds_of_parts_and_processes() -> None:
    found = as_json({"h100/8/plain": _round(8e-3)}, {}, {"commit": "abc"})
    (cell,) = json.loads(json.dumps(found))["cells"]
    assert found["note"] == NOTE
    assert cell["round_ms"] == 8.0
    assert cell["parts_ms"]["wire"] == 1.0
    assert cell["cpu_ms"] == {"target": 2.0, "coordinator": 1.0}
    assert cell["host_ms"] == 1.0
    assert cell["adds_up"]


def test_a_table_marks_parts_that_do_not_add_up() -> None:
    console = Console(width=300, record=True, file=io.StringIO())
    console.print(*tables({"good": _round(8e-3), "bad": _round(10e-3)}, {"target": CpuUse(0.5)}))
    lines = console.export_text().splitlines()
    (good,) = [line for line in lines if "good" in line and "1.000" in line]
    (bad,) = [line for line in lines if "bad" in line and "0.800" in line]
    assert "(!)" not in good
    assert "(!)" in bad
    assert any("a request of one token" in line and "500.00 / 0.00" in line for line in lines)


def test_a_plot_is_drawn(tmp_path: Path) -> None:
    plot({"h100/8/plain": _round(8e-3)}, tmp_path / "parts.png")
    assert (tmp_path / "parts.png").stat().st_size > 0
