"""What a profile says, from events that are made by hand."""

from __future__ import annotations

from typing import Any

from benchmarks.gpu_report.trace import Span, busy_us, gaps_us, read_spans, shares

GPU = frozenset({"kernel"})


def event(name: str, start: float, length: float, cat: str = "kernel") -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": start, "dur": length}


def test_only_work_of_the_device_is_read_in_its_order() -> None:
    events = [event("b", 30, 5), event("a", 10, 5), event("op", 0, 90, "cpu_op"), {"ph": "M"}]
    assert read_spans(events, GPU) == [Span("a", 10, 15), Span("b", 30, 35)]


def test_time_in_which_several_run_is_busy_once() -> None:
    spans = [Span("a", 0, 10), Span("b", 5, 8), Span("c", 8, 12), Span("d", 20, 25)]
    assert busy_us(spans) == 17
    assert gaps_us(spans) == [8]


def test_kernels_are_summed_by_name_the_largest_first() -> None:
    found = shares([Span("a", 0, 1), Span("b", 1, 4), Span("a", 4, 5)])
    assert [(one.name, one.calls, one.us) for one in found] == [("b", 1, 3), ("a", 2, 2)]
