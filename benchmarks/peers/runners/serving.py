"""The loop of a runner: messages from stdin, answers to what was stdout.

Engines print on stdout; whatever they print goes to stderr, the log.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Protocol

from benchmarks.peers.messages import (
    Decoded,
    Failed,
    Load,
    Loaded,
    Message,
    Turn,
    from_line,
    to_line,
)


class Runner(Protocol):
    """An engine with its models loaded."""

    @property
    def facts(self) -> dict[str, str]: ...

    def decode(self, turn: Turn) -> Decoded: ...


def serve(load: Callable[[Load], Runner]) -> None:
    """Answer every message until stdin ends. A failed turn leaves the runner as it was."""
    with os.fdopen(os.dup(1), "w") as replies:
        os.dup2(2, 1)
        runner: Runner | None = None
        for line in iter(sys.stdin.readline, ""):
            try:
                message = from_line(line)
                if isinstance(message, Load):
                    started = time.perf_counter()
                    runner = load(message)
                    answer: Message = Loaded(
                        seconds=time.perf_counter() - started, facts=runner.facts
                    )
                else:
                    assert runner is not None
                    assert isinstance(message, Turn)
                    answer = runner.decode(message)
            except Exception as error:
                traceback.print_exc()
                answer = Failed(reason=f"{type(error).__name__}: {error}")
            replies.write(to_line(answer))
            replies.flush()


def batches(turn: Turn, *, by_length: bool) -> list[list[int]]:
    """Places of the prompts, batch by batch."""
    places = list(range(len(turn.prompts)))
    if by_length:
        places.sort(key=lambda place: len(turn.prompts[place]))
    return [places[i : i + turn.batch_size] for i in range(0, len(places), turn.batch_size)]


def in_order(places: Sequence[int], answers: Sequence[list[int]]) -> list[list[int]]:
    """Answers that came in the order of `places`, in the order of the prompts."""
    return [answer for _, answer in sorted(zip(places, answers, strict=True))]
