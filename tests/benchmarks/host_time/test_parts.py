"""Time is split by part without a gap, on and off the critical path."""

from __future__ import annotations

import pytest

from benchmarks.host_time.device import Pass
from benchmarks.host_time.parts import OUTSIDE, PARTS, Spans, clocked_parts, split


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Engine:
    """Steps that take known times."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def step(self) -> str:
        self._clock.now += 1.0
        self.choose(fails=False)
        self._clock.now += 2.0
        return "done"

    def choose(self, *, fails: bool) -> None:
        self._clock.now += 4.0
        if fails:
            raise RuntimeError


HERE = __name__
NAMED = {
    "step": (f"{HERE}:Engine.step",),
    "choice": (f"{HERE}:Engine.choose", f"{HERE}:Engine.gone", "specdec_core.gone:name"),
}


def test_a_part_has_the_own_time_of_its_functions() -> None:
    clock = Clock()
    spans = Spans(clock)
    with clocked_parts(spans, NAMED) as missing:
        spans.is_on = True
        assert Engine(clock).step() == "done"
        clock.now += 100.0
        Engine(clock).step()
    assert split(spans.switches, []).busy == {"step": 6.0, "choice": 8.0}
    assert missing == (f"{HERE}:Engine.gone", "specdec_core.gone:name")
    assert not hasattr(Engine.step, "__wrapped__")


def test_nothing_is_noted_while_spans_are_off() -> None:
    clock = Clock()
    spans = Spans(clock)
    with clocked_parts(spans, NAMED):
        Engine(clock).step()
    assert not spans.switches
    assert split([], []).busy == {}


def test_an_error_ends_its_part() -> None:
    clock = Clock()
    spans = Spans(clock)
    with clocked_parts(spans, NAMED):
        spans.is_on = True
        with pytest.raises(RuntimeError):
            Engine(clock).choose(fails=True)
    assert spans.switches[-1] == (4.0, OUTSIDE)


def test_the_critical_path_is_the_time_between_passes() -> None:
    switches = [(0.0, "a"), (4.0, "b"), (10.0, OUTSIDE), (20.0, "a"), (23.0, OUTSIDE)]
    passes = [_pass(1.0, 3.0), _pass(3.0, 5.0), _pass(9.0, 12.0), _pass(21.0, 22.0)]
    found = split(switches, passes)
    assert found.busy == {"a": 7.0, "b": 6.0}
    assert found.critical == {"a": 1.0 + 2.0, "b": 4.0}
    assert found.device == 3.0 + 2.0 + 1.0
    assert sum(found.critical.values()) + found.device == sum(found.busy.values())


def test_a_device_that_takes_no_time_leaves_everything_on_the_critical_path() -> None:
    found = split([(0.0, "a"), (4.0, OUTSIDE)], [_pass(1.0, 1.0), _pass(2.0, 2.0)])
    assert found.critical == found.busy == {"a": 4.0}
    assert found.device == 0.0


def test_this_commit_has_all_functions_that_are_clocked() -> None:
    with clocked_parts(Spans(), PARTS) as missing:
        assert missing == ()


def _pass(started: float, ended: float) -> Pass:
    return Pass(started, started, ended, 1, 1)
