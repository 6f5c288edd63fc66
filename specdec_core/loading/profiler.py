"""Times passes of a few sizes after a model is loaded, and stores the times for the next start.

The scheduler then has correct costs before the first request. Later passes of other lengths, and
the time that the host adds, correct the costs.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from specdec_core.cache_folder import cache_folder
from specdec_core.config import GPU_ROWS, MAX_CPU_ROWS
from specdec_core.messages import Role
from specdec_core.model import CachedModel, score
from specdec_core.sampling_params import SamplingParams, SamplingRules
from specdec_core.step_times import StepTime, are_plausible, rows_that_gain
from specdec_core.worker.model_runner import ModelRunner
from specdec_core.worker.round import propose, round_row, score_and_verify

_PASSES = (
    *((1, 1), (1, 5), (8, 1), (8, 2), (32, 1), (8, 5), (1, 2), (1, 16), (4, 1), (16, 1)),
    *((32, 2), (64, 1), (1, 9), (8, 16), (32, 5), (8, 9)),
)
"""(sequences, rows of each) of a target, the most needed sizes first. 5, 9 and 16 rows show the
steps of kernels. Beyond 5 rows of 32 sequences, a line predicts the prices."""
_DRAFTS = ((1, 4), (8, 4), (1, 1), (32, 4), (8, 1), (4, 4), (16, 4))
"""(sequences, tokens of each) of a draft. Drafts of one step show the fixed cost of a lease."""
_BUDGET_S = 2.0
_MOST_REPEATS = 8
_LEAST_REPEATS = 2
"""Minimum repeats of a size. Its first pass may build what later passes use."""
_NUM_CHECKED = 2
"""Number of sizes that are timed again to find out if a table is from a busier time."""
_QUICKER = 0.85
"""Ratio of the seconds now to the stored seconds. Below this ratio, the table is measured again. A
machine's speed differs from hour to hour by less than this."""
_CONTEXT = 16
"""Cached tokens before the pass."""
_LONG_SIZE = (4, 1)
_LONG_CONTEXT = 112
"""Cached tokens before the passes that show the price of cached tokens. A multiple of
`_CONTEXT`."""
_LONG_BUDGET_S = 0.9
"""Seconds for these passes, including the prefill of their context."""
_TOKENS_PER_ROW = 256
"""Minimum cache tokens for each row of a group."""
_TOKEN = 1
_RULES = SamplingRules(SamplingParams(temperature=0.0), _CONTEXT)
_VERSION = 5
"""Version of the method of timing. Tables of another version are ignored."""

_logger = logging.getLogger(__name__)


def cached_or_timed(
    model: CachedModel, role: Role, identity: str, folder: Path | None = None
) -> tuple[StepTime, ...]:
    """Return the stored step times for this `identity`, or measure new ones.

    Equal identities mean that passes take equally long. A new table is stored if no other process
    seems to have disturbed it. If passes are quicker now, the earlier start had less of the
    machine, and the table is measured again.
    """
    try:
        path = (folder or cache_folder("step_times")) / f"{_key(role, identity)}.json"
    except OSError as error:
        _logger.info("cannot store the measured pass times: %s", error)
        return time_steps(model, role)
    cached = _read(path)
    if cached is not None and not _are_quicker_now(model, role, cached):
        return cached
    timed = time_steps(model, role)
    if are_plausible(timed):
        _write(path, timed)
        return timed
    _logger.warning(
        "other work disturbed the measured pass times; the next start measures them again"
    )
    return cached or timed


def _are_quicker_now(model: CachedModel, role: Role, cached: tuple[StepTime, ...]) -> bool:
    """Compare the first sizes, which take little time."""
    kept = {(*time[:2], time.num_cached): time.seconds for time in cached}
    few = time_steps(model, role, sizes=_sizes(role)[:_NUM_CHECKED], most_repeats=_LEAST_REPEATS)
    now = {(*time[:2], time.num_cached): time.seconds for time in few}
    both = [size for size in now if size in kept]
    return sum(now[size] for size in both) < _QUICKER * sum(kept[size] for size in both)


def time_steps(
    model: CachedModel,
    role: Role,
    clock: Callable[[], float] = time.perf_counter,
    sizes: Sequence[tuple[int, int]] = (),
    most_repeats: int = _MOST_REPEATS,
) -> tuple[StepTime, ...]:
    """Time passes and return the quickest of each size, within the limits of time and cache.

    `sizes` are (sequences, rows of each); for a draft, (sequences, drafted tokens of each). The
    default is the sizes of the role. For a target it adds a size after a long context. The
    difference to the short context is the price of cached tokens.
    """
    short = _Timing(model, role, clock, _CONTEXT, clock() + _BUDGET_S)
    times = short.quickest(sizes or _sizes(role), most_repeats)
    if role is Role.TARGET and not sizes:
        long = _Timing(model, role, clock, _LONG_CONTEXT, clock() + _LONG_BUDGET_S)
        times += long.quickest([_LONG_SIZE], most_repeats)
    return times


class _Timing:
    """Passes after a context of one length, until a deadline."""

    def __init__(
        self,
        model: CachedModel,
        role: Role,
        clock: Callable[[], float],
        context: int,
        deadline: float,
    ) -> None:
        self._model, self._role, self._clock = model, role, clock
        self._context, self._deadline = context, deadline
        self._slots: list[int] = []

    def quickest(self, sizes: Sequence[tuple[int, int]], most_repeats: int) -> tuple[StepTime, ...]:
        """Repeat the sizes in turn, so that a disturbance slows all sizes and not only one."""
        timed: dict[tuple[int, int], float] = {}
        last_s = 0.0
        try:
            for size in sizes:
                is_late = self._clock() + _LEAST_REPEATS * last_s > self._deadline
                if not is_late and self._fits(*size) and self._fill(size[0]):
                    last_s = min(self._seconds(*size) for _ in range(_LEAST_REPEATS))
                    timed[size] = last_s
            for size in [*timed] * (most_repeats - _LEAST_REPEATS):
                if self._clock() + timed[size] > self._deadline:
                    break
                timed[size] = min(timed[size], self._seconds(*size))
        finally:
            for slot in self._slots:
                self._model.free(slot)
        return tuple(
            StepTime(n, n * rows, least_s, self._context) for (n, rows), least_s in timed.items()
        )

    def _fits(self, num_sequences: int, num_rows: int) -> bool:
        model, longest = self._model, self._context + num_rows
        blocks = model.kv_cache_spec.blocks_for(longest)
        return longest <= model.max_model_len and num_sequences * blocks <= model.num_blocks

    def _fill(self, num_sequences: int) -> bool:
        """Give each of `num_sequences` sequences its context. Return False if the time does not
        suffice."""
        new = [self._model.allocate() for _ in range(num_sequences - len(self._slots))]
        self._slots += new
        for _ in range(0, self._context if new else 0, _CONTEXT):
            if self._clock() > self._deadline:
                return False
            score(self._model, [(slot, (_TOKEN,) * _CONTEXT, 0) for slot in new])
        return True

    def _seconds(self, num_sequences: int, num_rows: int) -> float:
        """Run one pass, or the steps of one draft."""
        model, slots = self._model, self._slots[:num_sequences]
        started = self._clock()
        if self._role is Role.TARGET:
            proposal = (_TOKEN,) * (num_rows - 1)
            score_and_verify(
                model, [round_row(s, (_TOKEN,), proposal, num_rows, _RULES) for s in slots]
            )
        else:
            propose(model, [round_row(s, (_TOKEN,), (), num_rows, _RULES) for s in slots])
        for slot in slots:
            model.rollback(slot, self._context)
        return self._clock() - started


def _sizes(role: Role) -> Sequence[tuple[int, int]]:
    return _PASSES if role is Role.TARGET else _DRAFTS


def rows_of_a_group(model: ModelRunner) -> int:
    """Return the default number of rows in a group. It is limited by the cache, and on a CPU also
    by the timed gain of larger groups."""
    num_held = model.num_blocks // model.kv_cache_spec.blocks_for(_TOKENS_PER_ROW)
    if model.device.type == "cpu":
        return max(min(rows_that_gain(model.step_times, MAX_CPU_ROWS), num_held), 1)
    return max(min(GPU_ROWS, num_held), 1)


def _key(role: Role, identity: str) -> str:
    return hashlib.sha256(f"{_VERSION}\n{role}\n{identity}".encode()).hexdigest()[:24]


def _read(path: Path) -> tuple[StepTime, ...] | None:
    """Return the stored table, or None if there is none or its content is invalid."""
    try:
        return tuple(_step_time(*entry) for entry in json.loads(path.read_text())) or None
    except (OSError, ValueError, TypeError):
        return None


def _step_time(num_sequences: Any, num_rows: Any, seconds: Any, num_cached: Any) -> StepTime:
    timed = StepTime(int(num_sequences), int(num_rows), float(seconds), int(num_cached))
    if not (1 <= timed.num_sequences <= timed.num_rows and 0.0 < timed.seconds < float("inf")):
        raise ValueError(f"not a possible pass time: {timed}")
    return timed


def _write(path: Path, times: tuple[StepTime, ...]) -> None:
    """Write a temporary file and rename it, because several processes may start together."""
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            json.dump(times, file)
        os.replace(file.name, path)
    except OSError as error:
        _logger.info("cannot store the measured pass times: %s", error)
