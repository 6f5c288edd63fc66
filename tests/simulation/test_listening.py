"""Patience in virtual time: who is silent is given up in time, and nobody else."""

from __future__ import annotations

import pytest

from deployments.simulation.listening import Listening
from deployments.simulation.record import Violation
from deployments.simulation.timeline import Process, Timeline
from deployments.wire.silence import Patience


class End:
    """A process that listens from the start of the world, for at most a second."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.process = Process(self.timeline, "p")
        self.given_up_at: float | None = None
        self.listening = Listening(self.process, 1.0, beat=lambda: None, give_up=self._note)

    def _note(self) -> None:
        self.given_up_at = self.timeline.now

    def hear_at(self, *times: float) -> None:
        for time in times:
            self.process.at(time, self.listening.hear)

    def run(self, seconds: float) -> float | None:
        self.timeline.run_until(lambda: self.timeline.now > seconds, seconds)
        return self.given_up_at


def test_who_is_silent_is_given_up_once_its_time_is_over_and_a_tenth_more() -> None:
    assert End().run(5.0) == pytest.approx(1.1)


def test_every_message_gives_it_its_time_again() -> None:
    end = End()
    end.hear_at(0.95, 1.9, 2.85)
    assert end.run(6.0) == pytest.approx(3.9)


def test_who_was_stopped_hears_what_came_meanwhile_before_it_gives_anybody_up() -> None:
    end = End()
    end.timeline.at(0.5, end.process.stop)
    end.hear_at(2.0)
    end.timeline.at(3.0, end.process.go_on)
    end.hear_at(3.4, 4.2, 5.0)
    assert end.run(5.5) is None


def test_what_a_message_takes_to_be_dealt_with_is_no_silence() -> None:
    end = End()
    end.process.at(0.5, end.listening.pause)
    end.hear_at(4.0)
    assert end.run(4.5) is None


def test_patience_without_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Patience, "look", lambda self: False)
    with pytest.raises(Violation, match=r"^\(h\) p has heard nothing"):
        End().run(5.0)


def test_impatience_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Patience, "look", lambda self: True)
    with pytest.raises(Violation, match=r"^\(h\) p gives up who was heard 0.100 s ago"):
        End().run(5.0)
