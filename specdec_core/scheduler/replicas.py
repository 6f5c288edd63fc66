"""The registered replicas: what each holds, what is leased to it, and how many blocks are taken.

Blocks are counted exactly as a replica allocates them: whole blocks per sequence, for the most
positions that any lease sent so far can leave in the slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from specdec_core.config import WINDOW_PER_ROW, Numerics, PoolConfig
from specdec_core.messages import ReplicaInfo, Role
from specdec_core.request import Request
from specdec_core.scheduler.device import Device, OpenLease
from specdec_core.scheduler.prefix_index import PrefixIndex
from specdec_core.scheduler.ready_queue import ReadyQueue
from specdec_core.scheduler.sequence import KVReservation, Sequence
from specdec_core.scheduler.stats import ReplicaCounters

ROUNDS_PER_BLOCK = 4
"""A running sequence needs a new block every few rounds: a newcomer leaves that much, or it would
be preempted as soon as it is admitted."""


@dataclass(eq=False, slots=True)
class ReplicaState:
    """One replica's life, from its registration to its end."""

    info: ReplicaInfo
    last_seen: float
    board: ReadyQueue
    changed: dict[int, Sequence]
    """Of the whole fleet: sequences whose plans must be made again."""
    device: Device = field(default_factory=Device)
    window: int = 1
    """Most sequences that it admits."""
    replica_id: str = field(init=False)
    role: Role = field(init=False)
    is_exact: bool = field(init=False)
    longest_len: int = field(init=False)
    """Positions that one sequence alone can have here."""
    sequences: dict[int, Sequence] = field(default_factory=dict)
    """Those that have a place here, by sequence id."""
    background: dict[int, Sequence] = field(default_factory=dict)
    """Those of them that no client waits for."""
    leases: dict[int, OpenLease] = field(default_factory=dict)
    num_reserved_blocks: int = 0
    is_fenced: bool = False
    """It did not answer in time: nothing is sent before it has acknowledged a reset."""
    is_draining: bool = False
    wake_at: float | None = None
    """When a group that waits for more members goes without them."""
    num_leases: int = 0
    num_rows: int = 0
    busy_s: float = 0.0

    def __post_init__(self) -> None:
        self.replica_id, self.role = self.info.replica_id, self.info.role
        self.is_exact = self.info.numerics is Numerics.EXACT
        info = self.info
        self.longest_len = min(info.max_model_len, info.num_blocks * info.block_size)

    @property
    def is_usable(self) -> bool:
        return not (self.is_fenced or self.is_draining)

    @property
    def num_free_blocks(self) -> int:
        """0 while fenced: its slots count as used until it has forgotten them."""
        return 0 if self.is_fenced else self.info.num_blocks - self.num_reserved_blocks

    def may_be_sent_more(self, max_open_leases: int) -> bool:
        """They are a device's, whichever replica has them: a draft leaves one to its target. Who
        has none is always sent one, or those before it in the fleet's order would have all."""
        if not self.leases:
            return True
        if self.role is Role.DRAFT and self.device.is_shared:
            return False
        return self.device.num_open < max_open_leases

    def num_blocks(self, length: int) -> int:
        return -(-length // self.info.block_size)

    def can_ever_hold(self, length: int) -> bool:
        return length <= self.longest_len

    def has_room(self, length: int) -> bool:
        """Whether a newcomer of this length fits, with what those here need soon left free."""
        spare = len(self.sequences) // ROUNDS_PER_BLOCK
        return (
            self.is_usable
            and self.can_ever_hold(length)
            and self.num_blocks(length) + spare <= self.num_free_blocks
        )

    def counters(self) -> ReplicaCounters:
        return ReplicaCounters(
            replica_id=self.replica_id,
            role=self.role,
            num_sequences=len(self.sequences),
            max_group_size=self.board.max_group_size,
            num_blocks=self.info.num_blocks,
            block_size=self.info.block_size,
            num_free_blocks=self.num_free_blocks,
            num_leases=self.num_leases,
            num_rows=self.num_rows,
            busy_s=self.busy_s,
            is_fenced=self.is_fenced,
            is_draining=self.is_draining,
            last_seen=self.last_seen,
        )

    def add(self, sequence: Sequence, length: int) -> None:
        """Give the sequence a place with room for `length` positions."""
        assert sequence.place(self.role) is None, "a sequence has one place per role"
        place = KVReservation(self.replica_id)
        sequence.take_place(self.role, place)
        self.sequences[sequence.sequence_id] = sequence
        if sequence.is_background:
            self.background[sequence.sequence_id] = sequence
        is_reserved = self.reserve(place, length)
        assert is_reserved, "room is checked before a place is given"
        self.touch(sequence)

    def remove(self, sequence: Sequence) -> None:
        place = sequence.place(self.role)
        assert place is not None, "what is removed was here"
        sequence.take_place(self.role, None)
        del self.sequences[sequence.sequence_id]
        self.background.pop(sequence.sequence_id, None)
        self.board.forget(sequence.sequence_id)
        self.touch(sequence)
        self.num_reserved_blocks -= self.num_blocks(place.reserved_len)

    def touch(self, sequence: Sequence) -> None:
        """Something that a plan depends on has changed: ids, a place, a lease, the round."""
        self.changed[sequence.sequence_id] = sequence

    def max_len(self, place: KVReservation) -> int:
        """Positions that the place can grow to."""
        blocks = self.num_blocks(place.reserved_len) + self.num_free_blocks
        return blocks * self.info.block_size

    def reserve(self, place: KVReservation, length: int) -> bool:
        """Grow the place to `length` positions, or change nothing. It never shrinks here."""
        if length <= place.reserved_len:
            return True
        size = self.info.block_size
        more = place.reserved_len // -size - length // -size
        if more > 0 and more > self.num_free_blocks:
            return False
        self.num_reserved_blocks += more
        place.reserved_len = length
        return True

    def settle(self, place: KVReservation, held_len: int, wanted_len: int) -> None:
        """The replica has answered: give back what it neither holds nor needs next."""
        length = held_len if held_len > wanted_len else wanted_len  # as in rows.py: no max()
        if length < place.reserved_len:
            size = self.info.block_size
            self.num_reserved_blocks -= length // -size - place.reserved_len // -size
            place.reserved_len = length


class ReplicaSet:
    """The replicas by id."""

    def __init__(self, config: PoolConfig) -> None:
        self._config = config
        self.records: dict[str, ReplicaState] = {}
        """By replica."""
        self.drafts: list[ReplicaState] = []
        self.targets: list[ReplicaState] = []
        self.changed: dict[int, Sequence] = {}
        """See ReplicaState."""

    def __iter__(self) -> Iterator[ReplicaState]:
        return iter(self.records.values())

    def __getitem__(self, replica_id: str) -> ReplicaState:
        return self.records[replica_id]

    def get(self, replica_id: str) -> ReplicaState | None:
        return self.records.get(replica_id)

    def add(self, info: ReplicaInfo, now: float) -> None:
        assert info.replica_id not in self.records, "the older incarnation is removed first"
        config = self._config
        most = config.max_prefill_tokens if info.role is Role.TARGET else None
        is_looked_up = most is not None and info.keeps_prefixes
        known = PrefixIndex(info.block_size, info.num_blocks) if is_looked_up else None
        size, window = config.max_group_size, config.window
        if info.max_num_seqs:
            size = min(size, info.max_num_seqs)
            window = min(window, WINDOW_PER_ROW * size)
        board = ReadyQueue(size, config.group_by_shape, most, known)
        replica = ReplicaState(info, now, board, self.changed, self._device_of(info), window)
        replica.device.leases[info.replica_id] = replica.leases
        self.records[info.replica_id] = replica
        self.of_role(info.role).append(replica)

    def remove(self, replica_id: str) -> None:
        replica = self.records.pop(replica_id)
        del replica.device.leases[replica_id]
        self.of_role(replica.role).remove(replica)

    def take_changed(self) -> list[Sequence]:
        """Every sequence that was touched since."""
        changed = list(self.changed.values())
        self.changed.clear()
        return changed

    def of_role(self, role: Role) -> list[ReplicaState]:
        return self.drafts if role is Role.DRAFT else self.targets

    def roomiest_target(self, length: int) -> ReplicaState | None:
        """The target with fewest sequences among those with room and half of their blocks free:
        one that lacks a row of a full group waits for it. Else the one with most free blocks."""
        able = [r for r in self.targets if len(r.sequences) < r.window and r.has_room(length)]
        roomy = [r for r in able if 2 * r.num_free_blocks >= r.info.num_blocks]
        if len(able) < 2 or not roomy:
            return _roomiest(able, length)
        return min(roomy, key=lambda r: (len(r.sequences), -r.num_free_blocks, r.replica_id))

    def roomiest_draft(self, length: int, target_id: str) -> ReplicaState | None:
        """One on the target's device first: there its groups stay together."""
        device = self.records[target_id].device
        near = [draft for draft in self.drafts if draft.device is device]
        return _roomiest(near, length) or _roomiest(self.drafts, length)

    def _device_of(self, info: ReplicaInfo) -> Device:
        """That of the others which name it, or else its own."""
        others = (r.device for r in self if info.device and r.info.device == info.device)
        return next(others, None) or Device()

    def unequal(self, pinned_fingerprint: str) -> str | None:
        """Why no registered target may go on with what targets of this fingerprint began."""
        targets = self.targets
        if not pinned_fingerprint or not targets:
            return None
        if any(replica.info.fingerprint == pinned_fingerprint for replica in targets):
            return None
        return (
            f"the targets that began this request ({pinned_fingerprint}) are gone, and those that "
            f"are left ({targets[0].info.fingerprint}) might go on with other tokens; try again"
        )

    def misfit(self, request: Request) -> str | None:
        """Why no registered target can ever finish the request; None with no target to ask."""
        targets = self.targets
        if not targets:
            return None
        return _foreign_id(request, targets[0].info.vocab_size) or self.overlong(request)

    def overlong(self, request: Request) -> str | None:
        """The part of `misfit` that does not read every id."""
        targets = self.targets
        limit = max(map(_longest_request, targets), default=request.max_len)
        if request.max_len <= limit:
            return None
        return (
            f"prompt of {len(request.prompt_token_ids)} tokens and max_tokens "
            f"{request.params.max_tokens} make {request.max_len}, the limit is {limit}"
        )


def _roomiest(replicas: Iterable[ReplicaState], length: int) -> ReplicaState | None:
    able = [replica for replica in replicas if replica.has_room(length)]
    if len(able) < 2:
        return able[0] if able else None
    return min(able, key=lambda r: (-r.num_free_blocks, r.replica_id))


def _longest_request(replica: ReplicaState) -> int:
    """The last token is never fed, so it needs no position."""
    return min(replica.info.max_model_len, replica.longest_len + 1)


def _foreign_id(request: Request, vocab_size: int) -> str | None:
    told = request.emitted_token_ids, request.resume_token_ids
    for token_ids in (request.prompt_token_ids, *told):
        if token_ids and not 0 <= min(token_ids) <= max(token_ids) < vocab_size:
            wrong = next(i for i in token_ids if not 0 <= i < vocab_size)
            return f"token id {wrong} is not in 0..{vocab_size - 1}"
    return None
