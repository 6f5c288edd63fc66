"""A device that computes nothing: a recorded pass only occupies it for a modelled time.

As on a GPU, a replay returns when the pass is launched, passes run one after another, and the host
waits when it asks for a number. A thread that waits sleeps without the GIL. The times are a model:
no figure that comes of them is a measurement of a GPU.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor

from benchmarks.host_time.pass_times import PassTimes
from specdec_core.kernels.ops import BlockRows
from specdec_core.layers.attention.paged import BlockAttention
from specdec_core.sampling import sampler as sampling
from specdec_core.worker.cuda_graphs.recorder import Work

SPIN_S = 20e-6
"""Seconds before the end of a pass in which a waiting thread does not sleep any more."""
_MAX_OVERSLEEP_S = 1e-3
_LEARNING_RATE = 0.1
_PR_SET_TIMERSLACK = 29
_TIMER_SLACK_NS = 1000
"""Linux wakes a thread up to 50 us late to save power, unless it asks for less."""


class Pass(NamedTuple):
    """One pass of the device, in seconds of its clock."""

    launched: float
    """Time at which the host handed the pass to the device."""
    started: float
    """Time at which the device began it: later than `launched` if it was busy."""
    ended: float
    rows: int
    tokens: float
    """Tokens of each row, padding included; the average where rows differ."""


class ModelledDevice:
    """Runs passes of given lengths one after another. One thread launches and waits."""

    def __init__(
        self,
        *,
        is_async: bool = True,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
        spin_s: float = SPIN_S,
    ) -> None:
        """Make an idle device. If `is_async` is False, a launch waits for its pass, as on a CPU.

        `spin_s` is 0 if `sleep` is exact.
        """
        self._is_async = is_async
        self._clock = clock
        self._sleep = sleep
        self._spin_s = spin_s
        self._busy_until = 0.0
        self._oversleep = 0.0
        """Seconds that a sleep lately took beyond what was asked, on average."""
        self._thread: int | None = None
        """Thread that launched the last pass."""
        self._exact_thread: int | None = None
        """Thread whose sleeps are known to end within microseconds."""
        self.passes: list[Pass] = []
        """Passes since the list was last cleared, in order."""

    def launch(self, seconds: float, rows: int = 0, tokens: float = 0.0) -> None:
        """Append a pass of `seconds` to the work of the device."""
        now = self._clock()
        started = max(now, self._busy_until)
        self._busy_until = started + seconds
        self._thread = threading.get_ident()
        self.passes.append(Pass(now, started, self._busy_until, rows, tokens))
        if not self._is_async:
            self.wait()

    def wait(self) -> None:
        """Return when all launched passes have ended."""
        if self._exact_thread != threading.get_ident():
            self._exact_thread = threading.get_ident()
            _sleep_exactly()
        remaining = self._busy_until - self._clock()
        while remaining > self._spin_s + self._oversleep:
            asked = remaining - self._oversleep - self._spin_s / 2
            before = self._clock()
            self._sleep(asked)
            self._note_oversleep(self._clock() - before - asked)
            remaining = self._busy_until - self._clock()
        while self._clock() < self._busy_until:
            pass

    def wait_if_own(self) -> None:
        """Wait, unless another thread launched the last pass: its numbers are not of this one."""
        if threading.get_ident() == self._thread:
            self.wait()

    def _note_oversleep(self, seconds: float) -> None:
        seconds = min(max(seconds, 0.0), _MAX_OVERSLEEP_S)
        self._oversleep += _LEARNING_RATE * (seconds - self._oversleep)


@contextmanager
def numbers_wait_for(device: ModelledDevice) -> Iterator[None]:
    """Within it, a host that reads numbers of tensors waits for the passes before them.

    Only `Tensor.tolist` waits: on a GPU specdec_core reads what a pass has chosen by it alone. The
    kernels that choose on a CPU are left out.
    """
    read = torch.Tensor.tolist

    def tolist(tensor: Tensor) -> Any:
        device.wait_if_own()
        return read(tensor)

    with (
        mock.patch.object(torch.Tensor, "tolist", tolist),
        mock.patch.object(sampling, "choice_kernels_for", _no_kernels),
    ):
        yield


def _no_kernels(logits: Tensor) -> None:
    """Stand in for choice_kernels_for: a GPU's logits have no kernels of the CPU."""


class DeviceAttention(BlockAttention):
    """Attention over blocks that mixes nothing; it sees the shape of every pass of one layer."""

    def __init__(self) -> None:
        self.rows = 0
        """Rows of the last pass."""
        self.tokens = 0.0
        """Tokens of each row of the last pass, on average; padding is included."""
        self.on_unrecorded: Callable[[int, float], object] | None = None
        """Called with rows and tokens of each pass, unless it is being recorded."""

    def __call__(
        self, query_THD: Tensor, keys: Tensor, values: Tensor, rows: BlockRows, scaling: float
    ) -> Tensor:
        """Return the scaled queries plus a value, so that a check of the cache sees it read."""
        self.rows = len(rows.blocks)
        self.tokens = len(query_THD) / self.rows
        if self.on_unrecorded is not None:
            self.on_unrecorded(self.rows, self.tokens)
        first = values[rows.blocks[:1, 0].long(), :1].sum()
        return query_THD * scaling + first


class DeviceRecorder:
    """Records passes of one model for a device; implements Recorder.

    A pass that is not recorded, as a prefill, takes its time on the device as well. Several models
    may have recorders for one device, whose passes then take turns.
    """

    def __init__(
        self, device: ModelledDevice, times: PassTimes, attention: DeviceAttention
    ) -> None:
        """`attention` must be the block attention of the model that is recorded."""
        self._device = device
        self._times = times
        self._attention = attention
        attention.on_unrecorded = self._launch

    def record(self, work: Work, clear: Work) -> Work:
        """Run `work` once to see its shape; a replay launches a pass of that shape."""
        self._attention.on_unrecorded = None
        try:
            clear()
            work()
        finally:
            self._attention.on_unrecorded = self._launch
        rows, tokens = self._attention.rows, self._attention.tokens
        seconds, launch = self._times(rows, tokens), self._device.launch

        def replay() -> None:
            launch(seconds, rows, tokens)

        return replay

    def free_bytes(self) -> int | None:
        """Return None: recordings take no memory."""
        return None

    def _launch(self, rows: int, tokens: float) -> None:
        self._device.launch(self._times(rows, tokens), rows, tokens)


def _sleep_exactly() -> None:
    """Let sleeps of this thread end within microseconds. Systems other than Linux ignore it."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_TIMERSLACK, _TIMER_SLACK_NS, 0, 0, 0)
