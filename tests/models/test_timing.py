"""Passes are timed once a model is loaded, and what was found is kept for the next start."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from specdec_core.loading import profiler as timing
from specdec_core.loading.profiler import cached_or_timed, time_steps
from specdec_core.messages import Role
from specdec_core.model import ForwardInput, ForwardOutput
from specdec_core.speculation.pass_prices import PriceTable
from specdec_core.step_times import StepTime, rows_that_gain
from tests.fakes import TokenListModel


class SlowClock:
    """Every look takes as long."""

    def __init__(self, step_s: float) -> None:
        self._now: Iterator[int] = count()
        self._step_s = step_s

    def __call__(self) -> float:
        return next(self._now) * self._step_s


def small() -> TokenListModel:
    return TokenListModel(num_blocks=1000, block_size=16)


def test_a_target_is_timed_in_sizes_with_and_without_drafts_and_keeps_nothing() -> None:
    model = small()
    sizes = {time[:2] for time in time_steps(model, Role.TARGET, SlowClock(1e-4))}
    assert {(1, 1), (1, 5), (8, 8), (8, 40), (32, 32), (32, 160)} <= sizes
    assert (model.num_slots, model.num_free_blocks) == (0, model.num_blocks)


def test_a_target_is_timed_behind_a_short_and_a_long_context() -> None:
    """The difference is what cached tokens cost."""
    model = small()
    times = time_steps(model, Role.TARGET, ReadingClock(model))
    short, long = (time for time in times if time[:2] == (4, 4))
    assert long.num_cached - short.num_cached == 96
    assert (model.num_slots, model.num_free_blocks) == (0, model.num_blocks)
    table = PriceTable(times)
    added_s = table.at(8, 16, 300) - table.at(8, 16, 100)
    assert added_s == pytest.approx(8 * 200 * ReadingClock.READ_S, rel=0.01)
    assert rows_that_gain(times, 64) == rows_that_gain(times[:-1], 64)


def test_a_context_that_takes_too_long_to_read_is_given_up() -> None:
    model = small()
    times = time_steps(model, Role.TARGET, SlowClock(0.3))
    assert len({time.num_cached for time in times}) == 1
    assert (model.num_slots, model.num_free_blocks) == (0, model.num_blocks)


def test_a_draft_is_timed_with_few_steps_and_with_one() -> None:
    """What a lease takes besides its steps is the difference."""
    model = small()
    times = time_steps(model, Role.DRAFT, SlowClock(1e-4))
    sizes = [time[:2] for time in times]
    assert sizes == [(1, 4), (8, 32), (1, 1), (32, 128), (8, 8), (4, 16), (16, 64)]
    assert (model.num_slots, model.num_free_blocks) == (0, model.num_blocks)


def test_slow_passes_are_timed_in_few_sizes() -> None:
    times = time_steps(small(), Role.TARGET, SlowClock(0.3))
    assert 1 <= len(times) < 4
    assert times[0][:2] == (1, 1)


class ReadingClock:
    """Passes take a fixed time, and more for each token that they read from the cache."""

    READ_S = 1e-6

    def __init__(self, model: TokenListModel) -> None:
        self._now, forward = 0.0, model.forward

        def timed(batch: ForwardInput) -> ForwardOutput:
            self._now += 1e-3 + self.READ_S * sum(map(model.cached_len, batch.slots))
            return forward(batch)

        model.forward = timed  # type: ignore[method-assign]

    def __call__(self) -> float:
        return self._now


class DisturbedClock(SlowClock):
    """Among the first looks some take fifty times as long, as beside other work."""

    def __call__(self) -> float:
        look = next(self._now)
        return (look + 49 * min(max(look - 10, 0), 30)) * self._step_s


@pytest.mark.parametrize("role", list(Role))
def test_what_else_runs_for_a_while_is_the_cost_of_no_size(role: Role) -> None:
    undisturbed = time_steps(small(), role, SlowClock(1e-4))
    disturbed = time_steps(small(), role, DisturbedClock(1e-4))
    assert [time[:2] for time in disturbed] == [time[:2] for time in undisturbed]
    assert [time.seconds for time in disturbed] == pytest.approx([1e-4] * len(disturbed))


def test_sizes_that_the_cache_has_no_room_for_are_left_out() -> None:
    model = TokenListModel(num_blocks=12, block_size=16)
    sizes = {time[:2] for time in time_steps(model, Role.TARGET, SlowClock(1e-4))}
    assert sizes == {(1, 1), (1, 2), (1, 5), (1, 9), (1, 16), (4, 4)}


SteadyAt = Callable[[float], None]


@pytest.fixture
def steady_at(monkeypatch: pytest.MonkeyPatch) -> SteadyAt:
    """From now on every pass takes so many seconds: what else this machine does decides nothing."""

    def set_pace(step_s: float) -> None:
        steady = partial(time_steps, clock=SlowClock(step_s))
        monkeypatch.setattr(timing, "time_steps", steady)

    return set_pace


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("step_s", [1e-4, 0.9e-4, 3e-4])
def test_a_second_start_reads_what_the_first_has_found(
    role: Role, step_s: float, steady_at: SteadyAt, tmp_path: Path
) -> None:
    """Also where the machine is a little quicker then, or busier."""
    steady_at(1e-4)
    first = cached_or_timed(small(), role, "digest cpu", tmp_path)
    steady_at(step_s)
    model = small()
    assert cached_or_timed(model, role, "digest cpu", tmp_path) == first
    num_few = model.num_passes
    cached_or_timed(model, role, "digest of another", tmp_path)
    assert model.num_passes > 5 * num_few


@pytest.mark.parametrize("role", list(Role))
def test_times_from_a_busier_start_are_found_anew(
    role: Role, steady_at: SteadyAt, tmp_path: Path
) -> None:
    """However evenly it was busy: the batch that follows would be too small for good."""
    steady_at(1.5e-4)
    cached_or_timed(small(), role, "digest", tmp_path)
    steady_at(1e-4)
    quicker = cached_or_timed(small(), role, "digest", tmp_path)
    assert [time.seconds for time in quicker] == pytest.approx([1e-4] * len(quicker))
    steady_at(1.5e-4)
    assert cached_or_timed(small(), role, "digest", tmp_path) == quicker


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '[["a", 1, 2]]', "[[1, 1]]", "[[1, 1, -0.5]]", "[[4, 1, 0.5]]"]
)
def test_a_damaged_table_is_made_anew(text: str, tmp_path: Path) -> None:
    smallest = TokenListModel(num_blocks=12, block_size=16)
    first = cached_or_timed(smallest, Role.TARGET, "digest", tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_text(text)
    again = cached_or_timed(smallest, Role.TARGET, "digest", tmp_path)
    assert [time[:2] for time in again] == [time[:2] for time in first]
    assert json.loads(path.read_text()) == [list(time) for time in again]


def test_a_folder_that_cannot_be_written_costs_nothing_but_the_time(tmp_path: Path) -> None:
    assert cached_or_timed(small(), Role.DRAFT, "digest", tmp_path / "missing")


@pytest.mark.parametrize(
    ("base_ms", "row_ms", "rows"),
    [(10.0, 0.0, 64), (5.0, 0.6, 64), (5.0, 0.8, 32), (5.0, 3.0, 32)],
)
def test_a_group_grows_while_twice_as_many_rows_gain_a_tenth(
    base_ms: float, row_ms: float, rows: int
) -> None:
    times = [StepTime(n, n, base_ms + row_ms * n) for n in (1, 4, 8, 16, 32)]
    assert rows_that_gain([*times, StepTime(8, 40, 1.0)], 64) == rows
    assert rows_that_gain(times, 4) == 4


def test_no_group_is_made_smaller_than_a_service_gains_by() -> None:
    """Zen 3 without AVX-512, milliseconds: passes alone say 8 rows, but 32 streams get a tenth more
    tokens a second with 32 than with 16, and with 8 the last of them wait ten seconds for their
    first."""
    times = ((1, 10.7), (4, 14.9), (8, 24.9), (16, 46.5), (32, 89.9))
    assert rows_that_gain([StepTime(n, n, s) for n, s in times], 64) == 32


def test_passes_too_slow_to_be_timed_leave_the_group_at_its_least() -> None:
    assert rows_that_gain([StepTime(1, 1, 0.9), StepTime(1, 5, 1.0)], 64) == 32


BUSY = [StepTime(n, n, s) for n, s in ((1, 8.2), (4, 10.6), (8, 17.5), (16, 45.4), (32, 108.2))]
"""Timed on two cores beside a compiler, milliseconds: 8 rows take 11 there, 16 take 17."""


def test_times_that_make_no_sense_leave_the_group_at_its_least() -> None:
    """Here those of 64, which passes beside it made look free."""
    assert rows_that_gain([*BUSY, StepTime(64, 64, 110.0)], 64) == 32


def test_times_that_make_no_sense_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steady_at: SteadyAt
) -> None:
    monkeypatch.setattr(timing, "time_steps", lambda *_: tuple(BUSY))
    assert cached_or_timed(small(), Role.TARGET, "digest", tmp_path) == tuple(BUSY)
    assert list(tmp_path.iterdir()) == []
    steady_at(1.0)
    cached_or_timed(small(), Role.TARGET, "digest", tmp_path)
    assert len(list(tmp_path.iterdir())) == 1


def test_quicker_times_that_make_no_sense_replace_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steady_at: SteadyAt
) -> None:
    steady_at(1.0)
    kept = cached_or_timed(small(), Role.TARGET, "digest", tmp_path)
    quicker = tuple(time._replace(seconds=time.seconds / 1000) for time in BUSY)
    monkeypatch.setattr(timing, "time_steps", lambda *_, **__: quicker)
    assert cached_or_timed(small(), Role.TARGET, "digest", tmp_path) == kept
