"""Medians of work on a device, and what its memory can be read with."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from specdec_core.model import score
from specdec_core.worker.model_runner import ModelRunner

_NUM_WARM_UPS = 3


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def median_s(
    run: Callable[[], object],
    repeats: int,
    device: torch.device,
    undo: Callable[[], object] = lambda: None,
) -> float:
    """Seconds of `run` until the device is done with it; `undo` follows each run, untimed."""
    seconds = []
    for turn in range(repeats + _NUM_WARM_UPS):
        wait(device)
        started = time.perf_counter()
        run()
        wait(device)
        if turn >= _NUM_WARM_UPS:
            seconds.append(time.perf_counter() - started)
        undo()
    return statistics.median(seconds)


@torch.inference_mode()
def bytes_per_second(device: torch.device) -> float:
    """Of a sum over memory, many times what a cache holds: the best of five."""
    numbers = torch.ones(2**30 if device.type == "cuda" else 2**24, device=device)
    seconds = []
    for _ in range(5):
        wait(device)
        started = time.perf_counter()
        numbers.sum()
        wait(device)
        seconds.append(time.perf_counter() - started)
    return numbers.numel() * numbers.itemsize / min(seconds)


@contextmanager
def filled(model: ModelRunner, rows: int, context: int) -> Iterator[list[int]]:
    """Slots that cache so many tokens each."""
    slots = [model.allocate() for _ in range(rows)]
    try:
        for slot in slots:
            score(model, [(slot, [1] * context, 0)])
        yield slots
    finally:
        for slot in slots:
            model.free(slot)


def roll_back(model: ModelRunner, slots: Sequence[int], context: int) -> None:
    for slot in slots:
        model.rollback(slot, context)
