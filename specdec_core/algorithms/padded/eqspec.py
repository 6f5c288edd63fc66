"""EQSPEC: static batches over a left-padded cache, realigned after every round.

The paper's Algorithm 1 (arXiv 2510.22876) left-pads a batch once. Each round drafts K tokens for
every live row, verifies them in one target pass and keeps the longest matching prefix. It then
unpads, appends and repads, so that row i moves by delta_i = L' - L - a_i. This module shares the
scheme of the published code, not its defects (algorithm.md, section 3).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from specdec_core.algorithms.live_sequence import RequestQueue
from specdec_core.algorithms.padded.interface import PaddedLM
from specdec_core.algorithms.padded.round import PaddedGroup, PaddedRound
from specdec_core.algorithms.protocol import AlgorithmStats
from specdec_core.config import SchedulerConfig
from specdec_core.grammar import GrammarCompiler
from specdec_core.request import Request, TokenEvent


class Eqspec:
    """Runs at most B requests at a time, in order of arrival. The next batch starts when all have
    ended."""

    def __init__(
        self,
        target: PaddedLM,
        draft: PaddedLM | None = None,
        *,
        config: SchedulerConfig,
        grammars: GrammarCompiler | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._round = PaddedRound(target, draft, config)
        self._queue = RequestQueue(target.max_cached_tokens, grammars)
        self._batch_size = config.max_group_size
        self._clock = clock
        self._batch: PaddedGroup | None = None

    @property
    def has_work(self) -> bool:
        return self._queue.has_work

    @property
    def stats(self) -> AlgorithmStats:
        return self._round.stats

    def add(self, request: Request) -> None:
        self._queue.add(request, self._clock())

    def abort(self, request_id: str) -> bool:
        is_known = self._queue.abort(request_id)
        if self._batch is not None:
            self._batch = self._round.realign(self._batch)
        return is_known

    def step(self) -> list[TokenEvent]:
        """Run one round of the batch; return the committed tokens."""
        events = self._queue.take_ended()
        batch = self._batch or self._next_batch()
        if batch is None:
            return events
        proposals = self._round.draft(batch)
        verdicts = self._round.verify(batch, proposals)
        events += self._round.commit(batch, proposals, verdicts)
        self._batch = self._round.realign(batch)
        self._queue.drop_finished()
        return events

    def _next_batch(self) -> PaddedGroup | None:
        with self._round.schedule_watch:
            self._queue.admit(self._batch_size, self._clock())
        return self._round.left_pad(self._queue.admitted) if self._queue.admitted else None
