"""Seconds that a stage takes, added up: by the clock on a host, by events on a GPU."""

from __future__ import annotations

import time
from types import TracebackType

import torch

_MAX_PENDING = 256


class Stopwatch:
    """`with watch:` adds the time of its body to `seconds`. Never makes the host wait for a GPU."""

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
                self._settle(_MAX_PENDING // 2)
        else:
            self._seconds += time.perf_counter() - self._started_s

    @property
    def seconds(self) -> float:
        self._settle(len(self._pending))
        return self._seconds

    def _settle(self, count: int) -> None:
        for first, last in self._pending[:count]:
            last.synchronize()
            self._seconds += first.elapsed_time(last) / 1000
        del self._pending[:count]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
