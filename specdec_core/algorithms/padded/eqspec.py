"""EQSPEC: static batches over a left-padded cache, realigned after every round.

The paper's Algorithm 1 (arXiv 2510.22876) left-pads a batch once. Each round drafts K tokens for
every live row, verifies them in one target pass and keeps the longest matching prefix. It then
unpads, appends and repads, so that row i moves by delta_i = L' - L - a_i. This module shares the
scheme of the published code, not its defects (algorithm.md, section 3).
"""

from __future__ import annotations

from specdec_core.algorithms.padded.round import PaddedAlgorithm, PaddedGroup
from specdec_core.request import TokenEvent


class Eqspec(PaddedAlgorithm):
    """Runs at most B requests at a time, in order of arrival. The next batch starts when all have
    ended."""

    _batch: PaddedGroup | None = None

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
        events += self._run(batch)
        self._batch = self._round.realign(batch)
        self._queue.drop_finished()
        return events

    def _next_batch(self) -> PaddedGroup | None:
        with self._round.schedule_watch:
            self._queue.admit(self._batch_size, self._clock())
        return self._round.left_pad(self._queue.admitted) if self._queue.admitted else None
