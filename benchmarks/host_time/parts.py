"""Split the host's time by part: a few named functions are clocked each time they are called."""

from __future__ import annotations

import importlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from benchmarks.host_time.device import Pass

OUTSIDE = "outside"
"""Time between two steps of the engine, which no figure contains."""
WAITING = "waiting"
"""Time in which the host waits for the device; on the critical path, the time it wakes up late."""
SCRIPT = "script"
"""Time the benchmark itself takes to put scripted choices in place of computed ones."""

PARTS: dict[str, tuple[str, ...]] = {
    "scheduling": ("specdec_core.scheduler.scheduler:Scheduler.advance",),
    "n-gram lookup": ("specdec_core.speculation.ngram:NgramDrafter.propose",),
    "settling": ("specdec_core.scheduler.scheduler:Scheduler.on_result",),
    "replica": (
        "specdec_core.worker.replica:Replica.execute",
        "specdec_core.worker.replica:score_and_verify",
        "specdec_core.worker.replica:propose",
    ),
    "plain loop": ("specdec_core.algorithms.autoregressive:Autoregressive.step",),
    "pass planning": (
        "specdec_core.worker.model_runner:ModelRunner.forward",
        "specdec_core.worker.cuda_graphs.draft_loop:DraftLoop.propose",
    ),
    "packing and buffers": (
        "specdec_core.worker.cuda_graphs.graph_runner:CudaGraphRunner.fill",
        "specdec_core.worker.cuda_graphs.draft_loop:DraftLoop._fill",
    ),
    "choice": (
        "specdec_core.worker.round:choose",
        "specdec_core.algorithms.autoregressive:choose",
    ),
    "launch": ("benchmarks.host_time.device:ModelledDevice.launch",),
    WAITING: ("benchmarks.host_time.device:ModelledDevice.wait",),
    SCRIPT: (
        "benchmarks.host_time.scripted:ScriptedModel.forward",
        "benchmarks.host_time.scripted:ScriptedModel.draft",
    ),
    "other": ("specdec_core.engine:Engine.step",),
}
"""Part of a round -> `module:name` of the functions whose own time it is. What a clocked function
calls belongs to it, unless that is clocked as well."""


class Spans:
    """Which part the host is in, from when to when. One thread."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._stack = [OUTSIDE]
        self.is_on = False
        """Whether parts are noted. Changes only between two steps of the engine."""
        self.switches: list[tuple[float, str]] = []
        """Times at which the part changed, and the part from then on."""

    def wrap(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` so that its own time belongs to `part`."""
        clock, stack, note = self._clock, self._stack, self.switches.append

        def clocked(*args: Any, **options: Any) -> Any:
            if not self.is_on:
                return function(*args, **options)
            stack.append(part)
            note((clock(), part))
            try:
                return function(*args, **options)
            finally:
                stack.pop()
                note((clock(), stack[-1]))

        return clocked


@contextmanager
def clocked_parts(
    spans: Spans, parts: dict[str, tuple[str, ...]] = PARTS
) -> Iterator[tuple[str, ...]]:
    """Within it, the named functions note their spans. Yields the names that this commit lacks."""
    missing = []
    with ExitStack() as stack:
        for part, names in parts.items():
            for name in names:
                owner, attribute = _found(name)
                function = getattr(owner, attribute, None)
                if function is None:
                    missing.append(name)
                else:
                    wrapped = spans.wrap(part, function)
                    stack.enter_context(mock.patch.object(owner, attribute, wrapped))
        yield tuple(missing)


def _found(name: str) -> tuple[Any, str]:
    """Return the object that has the attribute, or None, and the attribute's name."""
    module, _, path = name.partition(":")
    *owners, attribute = path.split(".")
    try:
        owner: Any = importlib.import_module(module)
    except ImportError:
        return None, attribute
    for one in owners:
        owner = getattr(owner, one, None)
    return owner, attribute


@dataclass(frozen=True, slots=True)
class Split:
    """Seconds by part, all rounds together."""

    busy: dict[str, float]
    """Time the host worked, by part. Waiting is listed apart and belongs to no sum."""
    critical: dict[str, float]
    """The same while the device was idle: from the end of a pass to the launch of the next."""
    device: float
    """Time the device was busy while the engine stepped."""


def split(switches: Sequence[tuple[float, str]], passes: Sequence[Pass]) -> Split:
    """Add up the parts between the first and the last switch."""
    busy: defaultdict[str, float] = defaultdict(float)
    critical: defaultdict[str, float] = defaultdict(float)
    device, first = 0.0, 0
    ends = [*switches[1:], *switches[-1:]]
    for (start, part), (end, _) in zip(switches, ends, strict=True):
        while first < len(passes) and passes[first].ended <= start:
            first += 1
        covered = _covered(passes, first, start, end)
        if part != OUTSIDE:
            busy[part] += end - start
            critical[part] += end - start - covered
            device += covered
    return Split(dict(busy), dict(critical), device)


def _covered(passes: Sequence[Pass], first: int, start: float, end: float) -> float:
    """Return the seconds between `start` and `end` in which passes from `first` on run."""
    covered = 0.0
    while first < len(passes) and passes[first].started < end:
        covered += min(end, passes[first].ended) - max(start, passes[first].started)
        first += 1
    return covered
