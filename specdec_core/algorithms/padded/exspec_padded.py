"""EXSPEC as the paper defines it: a pool of sequences with their own KV, stacked by equal length.

The paper's Algorithm 2 (arXiv 2510.22876): a window of W > B live sequences slides over the queue.
Each step stacks B of identical length, which needs no realignment. If no B have one length, the
first B are unpadded, appended and repadded. After verification each row returns to the pool with
its KV. A finished one leaves immediately, and the window refills. Longer lengths may wait long for
others of their length. The paper's method has this property too; `exspec` limits the wait.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from specdec_core.algorithms.live_sequence import LiveSequence
from specdec_core.algorithms.padded.interface import PaddedLM
from specdec_core.algorithms.padded.round import PaddedAlgorithm, PaddedGroup
from specdec_core.config import SchedulerConfig
from specdec_core.grammar import GrammarCompiler
from specdec_core.request import TokenEvent


class ExspecPadded(PaddedAlgorithm):
    """The window's sequences. Some are stacked by the last step, the others each have their own
    row."""

    def __init__(
        self,
        target: PaddedLM,
        draft: PaddedLM | None = None,
        *,
        config: SchedulerConfig,
        grammars: GrammarCompiler | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(target, draft, config=config, grammars=grammars, clock=clock)
        self._window = config.window
        self._stacked: PaddedGroup | None = None
        """Group of the last step. It stays stacked until another group is formed, because the same
        rows often come again."""
        self._alone: dict[LiveSequence, PaddedGroup] = {}
        """Groups of one. A fresh sequence has none before it is chosen."""

    def abort(self, request_id: str) -> bool:
        is_known = self._queue.abort(request_id)
        self._forget_finished()
        return is_known

    def step(self) -> list[TokenEvent]:
        """Refill the window, form a group, run one round of it, return the committed tokens."""
        events = self._queue.take_ended()
        with self._round.schedule_watch:
            self._queue.admit(self._window, self._clock())
            chosen = choose_rows(self._queue.admitted, self._batch_size)
        if not chosen:
            return events
        group = self._form(chosen)
        events += self._run(group)
        self._queue.drop_finished()
        self._forget_finished()
        return events

    def _form(self, chosen: Sequence[LiveSequence]) -> PaddedGroup:
        """Return the chosen rows as one rectangle. Rows that leave the last rectangle get their own
        memory."""
        fresh = [s for s in chosen if s not in self._homes()]
        prefilled = self._round.left_pad(fresh) if fresh else None
        homes = self._homes() | (_rows(prefilled) if prefilled else {})
        home, _ = homes[chosen[0]]
        if home.sequences == chosen:
            group = self._round.realign(home)
        else:
            group = self._round.stack([homes[sequence] for sequence in chosen])
        assert group is not None, "only live sequences are chosen"
        for sequence in chosen:
            self._alone.pop(sequence, None)
        self._unstack(group)
        self._stacked = group
        return group

    def _unstack(self, next_group: PaddedGroup) -> None:
        """Return rows of the last group that are not in the next one to the pool."""
        if self._stacked is None or self._stacked is next_group:
            return
        for sequence, home in _rows(self._stacked).items():
            if sequence not in next_group.sequences and sequence.finish_reason is None:
                self._alone[sequence] = self._round.stack([home])

    def _homes(self) -> dict[LiveSequence, tuple[PaddedGroup, int]]:
        """Return the group and row with the KV of every sequence that has some."""
        alone = {sequence: (group, 0) for sequence, group in self._alone.items()}
        return alone | (_rows(self._stacked) if self._stacked else {})

    def _forget_finished(self) -> None:
        self._alone = {s: group for s, group in self._alone.items() if s.finish_reason is None}
        if self._stacked and all(s.finish_reason for s in self._stacked.sequences):
            self._stacked = None


def choose_rows(window: Sequence[LiveSequence], size: int) -> list[LiveSequence]:
    """Return `size` sequences of one length, preferring the length whose oldest sequence is oldest.
    If no length has enough, return the first of all."""
    by_length: defaultdict[int, list[LiveSequence]] = defaultdict(list)
    for sequence in window:
        by_length[len(sequence.ids)].append(sequence)
    full = [sequences for sequences in by_length.values() if len(sequences) >= size]
    return list(full[0] if full else window)[:size]


def _rows(group: PaddedGroup) -> dict[LiveSequence, tuple[PaddedGroup, int]]:
    return {sequence: (group, row) for row, sequence in enumerate(group.sequences)}
