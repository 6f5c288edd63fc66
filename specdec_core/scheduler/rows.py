"""The rows of leases: the IDs that a sequence is fed on its target and on its draft.

Invariant (the cached-prefix rule): a row starts at base_len <= N - 1 of the N committed IDs and
feeds the IDs that follow. A prefill, a round, a rejection and a recovery are the same row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

from specdec_core.messages import LeaseRow
from specdec_core.scheduler.sequence import KVReservation, Rank, Sequence
from specdec_core.speculation.k_policy import DraftLengthReason

Age = tuple[float, float, int]
"""(ready since, rank, sequence ID, which is the end of its rank). A lower age is older."""

_NO_DRAFT, _ROOM = DraftLengthReason.NO_DRAFT, DraftLengthReason.ROOM
# to name the member of an enumeration takes as long as a call
_ALONE = 2
"""Chunks per pass for a prompt whose sequence is the only one on its target. No other sequence
waits for the pass, and a pass of more IDs takes less time per ID."""


@dataclass(eq=False, slots=True)
class ScheduledRow:
    """A row that is ready to be leased: what its sequence would run now."""

    sequence: Sequence
    lease_row: LeaseRow
    """Made at planning, right after the sequence's last round, while the data is in the CPU cache.
    By the time the row is chosen, thousands of others have pushed that data out."""
    slot_len: int
    """Maximum positions that the replica holds while it runs the row."""
    reason: DraftLengthReason = DraftLengthReason.OFF
    """Reason for the number of drafted tokens."""
    is_resuming: bool = False
    """Whether it checks tokens that a client brought back. They count as catch-up tokens, not as
    drafted ones."""
    num_matched: int = 0
    """New IDs that the target has cached, according to the version below of the PrefixIndex."""
    matched_at_version: int = 0

    @property
    def end_len(self) -> int:
        """Committed tokens that are cached after the row has run."""
        return self.lease_row.end_len

    @property
    def num_catching_up(self) -> int:
        """Number of IDs that the row feeds, the pending one and drafted ones excluded."""
        row = self.lease_row
        return len(row.new_ids) - 1 + (len(row.proposal) if self.is_resuming else 0)

    @property
    def num_choices(self) -> int:
        return self.lease_row.num_choices

    @property
    def proposal(self) -> tuple[int, ...]:
        return self.lease_row.proposal

    def checking(self, k: int, reason: DraftLengthReason) -> ScheduledRow:
        """Return the row with its first `k` drafted tokens, for `reason`."""
        if k < len(self.lease_row.proposal):
            return self.shortened(k, reason)
        if self.lease_row.proposal and self.reason is not _NO_DRAFT:
            self.reason = reason
        return self

    def shortened(self, num_drafted: int, reason: DraftLengthReason) -> ScheduledRow:
        """Return a copy that drafts or checks `num_drafted` tokens. The reason NO_DRAFT remains."""
        row = self.lease_row
        excess = self.slot_len - row.end_len - num_drafted
        row = row._replace(
            num_choices=row.num_choices - excess, proposal=row.proposal[:num_drafted]
        )
        if self.reason is _NO_DRAFT:
            reason = _NO_DRAFT
        return ScheduledRow(self.sequence, row, self.slot_len - excess, reason, self.is_resuming)

    @property
    def age(self) -> Age:
        rank, sequence_id = self.sequence.rank
        return self.sequence.ready_since, rank, sequence_id


rank_of: Callable[[ScheduledRow], Rank] = attrgetter("sequence.rank")
age_of: Callable[[ScheduledRow], Age] = attrgetter("age")


def plan_verification(
    sequence: Sequence,
    reservation: KVReservation,
    proposal: tuple[int, ...],
    chunk: int,
    *,
    is_alone: bool = False,
) -> ScheduledRow:
    """Return a row that catches up and checks `proposal`.

    While more than `chunk` IDs are missing, the row is a bare chunk. Tokens that a client brought
    back fill a row up to `chunk` IDs, as a catch-up does. The chunk of a sequence that is alone on
    its target is longer if its IDs need no logits.
    """
    num_ids, cached_len = len(sequence.ids), reservation.cached_len
    scores = num_ids == sequence.num_prompt and sequence.is_scored
    is_resuming = num_ids < sequence.resume_len
    if is_alone and not scores and not is_resuming:
        chunk *= _ALONE
    # No min(): a call takes ten times as long as a comparison.
    end_len = num_ids if cached_len + chunk >= num_ids else cached_len + chunk
    base_len = cached_len if cached_len < num_ids else num_ids - 1
    num_scored = 0
    if scores:
        # The logits of a position come from feeding the position before it, once more.
        base_len = min(base_len, len(sequence.prompt_logprobs))
        num_scored = end_len - base_len - 1
    is_last = end_len == num_ids
    if not is_last:
        proposal = ()
    elif is_resuming:
        proposal = proposal[: max(chunk - (end_len - base_len), 0)]
    num_checked = len(proposal)
    num_choices = num_checked + 1 if is_last else 0
    # There is nearly always one ID: a slice and a tuple of it take three times as long.
    is_one = base_len == num_ids - 1
    new_ids = (sequence.ids[base_len],) if is_one else tuple(sequence.ids[base_len:end_len])
    base_hash = sequence.prefix_hashes[base_len]
    rules = None if reservation.has_rules else sequence.request.rules
    fields = sequence.sequence_id, base_len, base_hash, new_ids, proposal, num_choices, num_scored
    row = tuple.__new__(LeaseRow, (*fields, rules))  # LeaseRow(...) takes twice as long
    current = sequence.round
    reason = _NO_DRAFT if current is None or current.proposal is None else current.reason
    return ScheduledRow(sequence, row, end_len + num_checked, reason, is_resuming and is_last)


def plan_drafting(
    sequence: Sequence, reservation: KVReservation, num_draft_tokens: int, chunk: int
) -> ScheduledRow:
    """Return a row that catches up by at most `chunk` IDs and drafts.

    With 0 draft tokens the row only catches up (a side lease).
    """
    base_len = min(reservation.cached_len, len(sequence.ids) - 1)
    end_len = min(base_len + chunk, len(sequence.ids))
    row = LeaseRow(
        sequence_id=sequence.sequence_id,
        base_len=base_len,
        base_hash=sequence.prefix_hashes[base_len],
        new_ids=tuple(sequence.ids[base_len:end_len]),
        num_choices=num_draft_tokens,
        rules=None if reservation.has_rules else sequence.request.rules,
    )
    slot_len = end_len + max(num_draft_tokens - 1, 0)
    reason = _NO_DRAFT if sequence.round is None else sequence.round.reason
    return ScheduledRow(sequence, row, slot_len, reason)


def fit(row: ScheduledRow, max_len: int) -> ScheduledRow:
    """Return the row, with fewer tokens to draft or check if `max_len` positions need it."""
    end_len = row.end_len
    assert end_len <= max_len, f"{end_len} ids do not fit into {max_len} positions"
    return row if row.slot_len <= max_len else row.shortened(max_len - end_len, _ROOM)
