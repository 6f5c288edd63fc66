"""Measures the time of a stage, and waits for its end: by the clock on a host, by events on a
GPU."""

from __future__ import annotations

import time
from itertools import takewhile
from types import TracebackType

import torch

_MAX_PENDING = 256
"""Maximum stages that are kept before the watch checks which of them have ended."""


class Stopwatch:
    """`with watch:` adds the time of its body to `seconds`. Makes the host wait for a GPU only when
    `seconds` is read."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._is_cuda = device.type == "cuda"
        self._seconds = 0.0
        self._started_s = 0.0
        self._pending: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def __enter__(self) -> None:
        if self._is_cuda:
            self._pending.append((_event(), _event()))
            self._pending[-1][0].record(torch.cuda.current_stream(self._device))
        else:
            self._started_s = time.perf_counter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_cuda:
            self._pending[-1][1].record(torch.cuda.current_stream(self._device))
            if len(self._pending) > _MAX_PENDING:
                self._collect(self._num_past())
        else:
            self._seconds += time.perf_counter() - self._started_s

    @property
    def seconds(self) -> float:
        if self._pending:
            self._pending[-1][1].synchronize()
        self._collect(len(self._pending))
        return self._seconds

    def _num_past(self) -> int:
        """Return the number of stages, from the first on, that the GPU has finished."""
        return len(list(takewhile(_has_passed, self._pending)))

    def _collect(self, count: int) -> None:
        for first, last in self._pending[:count]:
            self._seconds += first.elapsed_time(last) / 1000
        del self._pending[:count]


def wait_for(device: torch.device) -> None:
    """Return when a GPU has finished its queued work. A CPU has always finished."""
    if device.type == "cuda":
        behind = _event()
        behind.record(torch.cuda.current_stream(device))
        behind.synchronize()


def _has_passed(stage: tuple[torch.cuda.Event, torch.cuda.Event]) -> bool:
    return bool(stage[1].query())  # type: ignore[no-untyped-call]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
