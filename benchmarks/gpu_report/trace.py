"""What a profile says: which kernels take the time, and how long the device does nothing."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

_ON_GPU = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_ON_CPU = frozenset({"cpu_op"})


class Span(NamedTuple):
    """One piece of a device's work, in microseconds."""

    name: str
    start: float
    end: float


class Share(NamedTuple):
    """What one kernel takes of all work."""

    name: str
    calls: int
    us: float


def spans_of(run: Callable[[], object], device: torch.device, folder: Path) -> list[Span]:
    """Runs it under the profiler; on a CPU operations stand for kernels."""
    is_cuda = device.type == "cuda"
    activity = ProfilerActivity.CUDA if is_cuda else ProfilerActivity.CPU
    with profile(activities=[activity]) as seen:
        run()
        if is_cuda:
            torch.cuda.synchronize(device)
    path = folder / "trace.tmp"
    seen.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    path.unlink()
    return read_spans(events, _ON_GPU if is_cuda else _ON_CPU)


def read_spans(events: Iterable[dict[str, Any]], kinds: frozenset[str]) -> list[Span]:
    """In the order of their starts."""
    found = [
        Span(event["name"], float(event["ts"]), float(event["ts"]) + float(event["dur"]))
        for event in events
        if event.get("ph") == "X" and event.get("cat") in kinds
    ]
    return sorted(found, key=lambda span: (span.start, span.end))


def busy_us(spans: Sequence[Span]) -> float:
    """Of the time in which at least one of them ran."""
    busy, reached = 0.0, float("-inf")
    for span in spans:
        busy += max(0.0, span.end - max(span.start, reached))
        reached = max(reached, span.end)
    return busy


def gaps_us(spans: Sequence[Span]) -> list[float]:
    """Between the first start and the last end, longest first."""
    gaps, reached = [], spans[0].end
    for span in spans[1:]:
        if span.start > reached:
            gaps.append(span.start - reached)
        reached = max(reached, span.end)
    return sorted(gaps, reverse=True)


def shares(spans: Iterable[Span]) -> list[Share]:
    """By time, the largest first."""
    found: dict[str, list[float]] = defaultdict(list)
    for span in spans:
        found[span.name].append(span.end - span.start)
    rows = [Share(name, len(times), sum(times)) for name, times in found.items()]
    return sorted(rows, key=lambda row: -row.us)
