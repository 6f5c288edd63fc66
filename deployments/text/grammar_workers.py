"""Workers for grammars: threads apart from the one that runs passes, or the caller itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

from specdec_core.errors import InvalidRequestError

_NUM_QUICK = 3
_NUM_SLOW = 2
_STACK_BYTES = 64 * 2**20
"""Stack of a thread. A grammar that another process could read with 8 MB needs less."""

Work = TypeVar("Work")


class Workers(Protocol):
    """Does work, and keeps its result or its InvalidRequestError in a future."""

    def submit(self, work: Callable[[], Work], *, is_slow: bool) -> Future[Work]: ...


class AtOnce:
    """Workers of an engine without other requests: the caller does the work."""

    def submit(self, work: Callable[[], Work], *, is_slow: bool) -> Future[Work]:
        done: Future[Work] = Future()
        try:
            done.set_result(work())
        except InvalidRequestError as error:
            done.set_exception(error)
        return done


class GrammarThreads:
    """Threads of a replica. Work that is known to be slow has threads of its own."""

    def __init__(self) -> None:
        self._quick = _begun(_NUM_QUICK, "grammar")
        self._slow = _begun(_NUM_SLOW, "slow-grammar")

    def submit(self, work: Callable[[], Work], *, is_slow: bool) -> Future[Work]:
        return (self._slow if is_slow else self._quick).submit(work)


def _begun(num_threads: int, name: str) -> ThreadPoolExecutor:
    """Return an executor whose threads have started, with large stacks."""
    executor = ThreadPoolExecutor(num_threads, thread_name_prefix=name)
    barrier = threading.Barrier(num_threads + 1)
    before = threading.stack_size(_STACK_BYTES)
    try:
        for _ in range(num_threads):
            executor.submit(barrier.wait)
        barrier.wait()
    finally:
        threading.stack_size(before)
    return executor
