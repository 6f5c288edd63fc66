"""(l): the service catches an unforeseen error, logs it and continues. In a world such an error is
a violation, because faults come from outside, and all of them are foreseen."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from deployments.simulation.record import Violation
from deployments.simulation.timeline import Timeline
from deployments.wire.liveness import PeerTimeoutError


class _Listener(logging.Handler):
    def __init__(self, timeline: Timeline, left_out: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._timeline = timeline
        self._left_out = left_out

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.ERROR:
            self._note_silence(record)
            return
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, Violation):
            self._timeline.fail(error)
        else:
            text = f"{record.getMessage()}{f': {error!r}' if error is not None else ''}"
            self._timeline.fail(Violation(f"(l) {record.name} says {text}"))

    def _note_silence(self, record: logging.LogRecord) -> None:
        said = record.args if isinstance(record.args, tuple) else ()
        if any(isinstance(one, PeerTimeoutError) for one in said):
            with self._timeline.watched():
                self._left_out(str(said[0]))


@contextmanager
def no_surprises(timeline: Timeline, left_out: Callable[[str], None]) -> Iterator[None]:
    """Turn logged errors into violations. `left_out` is called with each replica that a coordinator
    has given up for its silence. Nothing is printed, because the service logs every fault,
    thousands of times."""
    logger = logging.getLogger("deployments")
    before = logger.level, logger.propagate, logger.handlers
    logger.setLevel(logging.WARNING)
    logger.propagate, logger.handlers = False, [_Listener(timeline, left_out)]
    try:
        yield
    finally:
        logger.level, logger.propagate, logger.handlers = before
        logger.setLevel(before[0])
