"""The registered replicas: their sequences, their open leases and their KV blocks.

Blocks are counted exactly as a replica allocates them, by the KVCacheSpec that it registered with.
A sequence takes the blocks for the maximum number of positions that any lease sent so far can leave
in its slot. Replicas that share a device take turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from specdec_core.config import WINDOW_PER_ROW, Numerics, SchedulerConfig
from specdec_core.errors import InvalidRequestError
from specdec_core.messages import GroupLease, ReplicaInfo, Role
from specdec_core.request import Request
from specdec_core.scheduler.commands import Command, SendFree
from specdec_core.scheduler.ready_queue import PrefixIndex, ReadyQueue
from specdec_core.scheduler.sequence import KVReservation, Sequence
from specdec_core.scheduler.stats import ReplicaCounters

_MAX_PASSES_WAITED = 3
"""On a shared device, a partial group waits up to this many passes for more rows. If passes take
longer than SchedulerConfig.max_group_wait_s, groups of 8 had 6 rows with 1, and 8 with 3."""


@dataclass(eq=False, slots=True)
class OpenLease:
    """A lease without a result yet."""

    lease: GroupLease
    deadline: float
    """Time by which the result must arrive. It is set again when the lease before is answered,
    because the replica begins this lease only then."""
    since: float
    """Time at which the host began with it: when the result that it follows came, or else when it
    was sent."""
    is_split: bool
    """See SchedulerConfig.overlap."""
    num_catching_up: int
    """Catch-up tokens that its rows have yet to compute, if SchedulerConfig limits them."""
    is_resuming: bool = False
    """Whether some row checks tokens that a client brought back. Such a pass is no ordinary round
    and says nothing about a draft."""


@dataclass(eq=False, slots=True)
class Device:
    """State shared by the replicas of one accelerator. Most replicas have their own."""

    leases: dict[str, dict[int, OpenLease]] = field(default_factory=dict)
    """Replica ID -> its open leases, by lease ID."""
    _answered_at: deque[float] = field(
        default_factory=lambda: deque([-inf] * _MAX_PASSES_WAITED, _MAX_PASSES_WAITED)
    )
    """Times at which the last results of any replica came."""
    _passes: deque[float] = field(
        default_factory=lambda: deque([0.0] * _MAX_PASSES_WAITED, _MAX_PASSES_WAITED)
    )
    """Seconds that the passes of these results took."""

    @property
    def is_shared(self) -> bool:
        return len(self.leases) > 1

    @property
    def num_open(self) -> int:
        return sum(map(len, self.leases.values()))

    def wait_deadline(self, ready_since: float) -> float:
        """Return the time until which a partial group waits for more rows.

        A shared device that runs other passes would not run the group sooner if it were sent, and
        rows of those passes may join it. The wait is bounded, because a running pass may hang or
        be the device's only work for a long time.
        """
        if not (self.is_shared and self.num_open) or self._answered_at[0] > ready_since:
            return -inf
        return max(self._answered_at[-1], ready_since) + _MAX_PASSES_WAITED * max(self._passes)

    def answered(
        self, lease: OpenLease, pass_s: float, now: float, recording_s: float = 0.0
    ) -> float:
        """Note a result and return the seconds that its lease took, those for others left out.

        `pass_s` is the pass by the replica's own clock, which also runs during passes of other
        replicas. `recording_s` is the time spent on recording for later passes.
        """
        began = max(lease.since, self._answered_at[-1])  # until then others had the device
        self._answered_at.append(now)
        # A driver's clock may stand still.
        seconds = max(now - began, 0.0 if self.is_shared else pass_s)
        seconds = max(seconds - recording_s, 0.0)
        self._passes.append(seconds)
        return seconds


ROUNDS_PER_BLOCK = 4
"""Rounds after which a running sequence needs a new block, roughly. Admission leaves these blocks
free, or a newcomer would be preempted as soon as it is admitted."""


@dataclass(eq=False, slots=True)
class ReplicaState:
    """State of one replica, from its registration to its end."""

    info: ReplicaInfo
    ready_queue: ReadyQueue
    changed: dict[int, Sequence]
    """Sequences of all replicas whose rows must be planned again, because IDs, a slot, a lease or
    the round have changed."""
    device: Device = field(default_factory=Device)
    window: int = 1
    """Maximum number of sequences that the replica admits."""
    replica_id: str = field(init=False)
    role: Role = field(init=False)
    is_exact: bool = field(init=False)
    longest_len: int = field(init=False)
    """Maximum positions of a sequence that is alone here."""
    sequences: dict[int, Sequence] = field(default_factory=dict)
    """Sequences that have a slot here, by sequence ID."""
    background: dict[int, Sequence] = field(default_factory=dict)
    """Sequences with a slot here that no client waits for."""
    leases: dict[int, OpenLease] = field(default_factory=dict)
    frees: list[int] = field(default_factory=list)
    """IDs of sequences that have left. The replica gets them with its next `SendFree`."""
    blocks_for: Callable[[int], int] = field(init=False)
    """See KVCacheSpec. Bound once, because each row of a round calls it twice."""
    num_unreserved_blocks: int = field(init=False)
    """Blocks that no sequence here has reserved, whether or not the replica is fenced."""
    is_fenced: bool = False
    """Whether the replica failed to answer in time. Nothing is sent to it before it has
    acknowledged a reset."""
    is_draining: bool = False
    wake_at: float = inf
    """Time at which a batch that waits for more rows is sent without them. Infinite if only an
    event can make it due."""
    num_leases: int = 0
    num_rows: int = 0
    busy_s: float = 0.0

    def __post_init__(self) -> None:
        self.replica_id, self.role = self.info.replica_id, self.info.role
        self.is_exact = self.info.numerics is Numerics.EXACT
        info = self.info
        self.blocks_for = info.kv_cache_spec.blocks_for
        self.num_unreserved_blocks = info.num_blocks
        self.longest_len = min(info.max_model_len, info.kv_cache_spec.max_len(info.num_blocks))

    @property
    def is_usable(self) -> bool:
        return not (self.is_fenced or self.is_draining)

    @property
    def num_free_blocks(self) -> int:
        """Number of free blocks; 0 while fenced, because slots count as used until forgotten."""
        return 0 if self.is_fenced else self.num_unreserved_blocks

    @property
    def num_reserved_blocks(self) -> int:
        return self.info.num_blocks - self.num_unreserved_blocks

    def may_be_sent_more(self, max_open_leases: int) -> bool:
        """Return whether the replica may be sent one more lease.

        `max_open_leases` holds for a device. On a shared one a draft has at most one and leaves
        the others to its target. A replica without a lease is always sent one, or those before it
        would have all.
        """
        if not self.leases:
            return True
        if self.role is Role.DRAFT and self.device.is_shared:
            return False
        return self.device.num_open < max_open_leases

    def has_room(self, length: int) -> bool:
        """Return whether a newcomer fits, and leaves the blocks that others need soon."""
        spare = len(self.sequences) // ROUNDS_PER_BLOCK
        return (
            self.is_usable
            and length <= self.longest_len
            and self.blocks_for(length) + spare <= self.num_unreserved_blocks
        )

    def counters(self) -> ReplicaCounters:
        return ReplicaCounters(
            replica_id=self.replica_id,
            role=self.role,
            num_sequences=len(self.sequences),
            max_group_size=self.ready_queue.max_rows,
            num_blocks=self.info.num_blocks,
            block_size=self.info.kv_cache_spec.block_size,
            num_free_blocks=self.num_free_blocks,
            num_leases=self.num_leases,
            num_rows=self.num_rows,
            busy_s=self.busy_s,
            is_fenced=self.is_fenced,
            is_draining=self.is_draining,
        )

    def is_leased(self, sequence: Sequence) -> bool:
        """Return whether a row of the sequence, which has a slot here, is leased out."""
        reservation = sequence.reservation(self.role)
        return reservation is not None and reservation.row is not None

    def add(self, sequence: Sequence, length: int) -> KVReservation:
        """Return a slot for the sequence with room for `length` positions."""
        reservation = KVReservation(self.replica_id)
        self.sequences[sequence.sequence_id] = sequence
        if sequence.is_background:
            self.background[sequence.sequence_id] = sequence
        is_reserved = self.reserve(reservation, length)
        assert is_reserved, "room is checked before a sequence is added"
        self.changed[sequence.sequence_id] = sequence
        return reservation

    def remove(self, sequence: Sequence, reservation: KVReservation) -> None:
        """Take the sequence's slot back."""
        del self.sequences[sequence.sequence_id]
        self.background.pop(sequence.sequence_id, None)
        self.ready_queue.remove(sequence.sequence_id)
        self.changed[sequence.sequence_id] = sequence
        self.num_unreserved_blocks += reservation.num_blocks

    def send_frees(self, commands: list[Command]) -> None:
        """Tell the replica which sequences have left, if any have."""
        if self.frees:
            commands.append(SendFree(self.replica_id, tuple(self.frees)))
            self.frees.clear()

    def max_len(self, reservation: KVReservation) -> int:
        """Return the number of positions that the slot can grow to."""
        num_blocks = reservation.num_blocks + self.num_free_blocks
        return self.info.kv_cache_spec.max_len(num_blocks)

    def reserve(self, reservation: KVReservation, length: int) -> bool:
        """Grow the slot to `length` positions if blocks are free; return whether it is as long."""
        if length <= reservation.reserved_len:
            return True
        more = self.blocks_for(length) - reservation.num_blocks
        if more:
            if more > self.num_unreserved_blocks:
                return False
            self.num_unreserved_blocks -= more
            reservation.num_blocks += more
        reservation.reserved_len = length
        return True

    def release(self, reservation: KVReservation, held_len: int, wanted_len: int) -> None:
        """Give back the blocks that the replica, after its answer, neither holds nor needs next."""
        length = held_len if held_len > wanted_len else wanted_len  # as in rows.py: no max()
        if length < reservation.reserved_len:
            reservation.reserved_len = length
            fewer = reservation.num_blocks - self.blocks_for(length)
            if fewer:
                self.num_unreserved_blocks += fewer
                reservation.num_blocks -= fewer


class ReplicaSet:
    """The registered replicas, by ID and by role."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._config = config
        self.by_id: dict[str, ReplicaState] = {}
        """Replica ID -> its state."""
        self.drafts: list[ReplicaState] = []
        self.targets: list[ReplicaState] = []
        self.changed: dict[int, Sequence] = {}
        """See ReplicaState."""

    def add(self, info: ReplicaInfo) -> None:
        assert info.replica_id not in self.by_id, "the older incarnation is removed first"
        config = self._config
        most = config.max_prefill_tokens if info.role is Role.TARGET else None
        is_looked_up = most is not None and info.keeps_prefixes
        block_size = info.kv_cache_spec.block_size
        prefix_index = PrefixIndex(block_size, info.num_blocks) if is_looked_up else None
        size, window = config.max_group_size, config.window
        if info.max_num_seqs:
            size = min(size, info.max_num_seqs)
            window = min(window, WINDOW_PER_ROW * size)
        ready_queue = ReadyQueue(info.role, size, most, prefix_index)
        replica = ReplicaState(info, ready_queue, self.changed, self._device_of(info), window)
        replica.device.leases[info.replica_id] = replica.leases
        self.by_id[info.replica_id] = replica
        self.of_role(info.role).append(replica)

    def remove(self, replica_id: str) -> None:
        replica = self.by_id.pop(replica_id)
        del replica.device.leases[replica_id]
        self.of_role(replica.role).remove(replica)

    def of_role(self, role: Role) -> list[ReplicaState]:
        return self.drafts if role is Role.DRAFT else self.targets

    def roomiest_target(self, length: int) -> ReplicaState | None:
        """Return the target to admit a sequence to, or None if none has room."""
        able = [r for r in self.targets if len(r.sequences) < r.window and r.has_room(length)]
        return min(able, key=_admission_order, default=None)

    def roomiest_draft(self, length: int, target_id: str) -> ReplicaState | None:
        """Return the roomiest draft, on the target's device if possible.

        There the target's groups stay together.
        """
        device = self.by_id[target_id].device
        return min(
            [draft for draft in self.drafts if draft.has_room(length)],
            key=lambda r: (r.device is not device, -r.num_unreserved_blocks, r.replica_id),
            default=None,
        )

    def _device_of(self, info: ReplicaInfo) -> Device:
        """Return the device of other replicas that name the same one, or else a new one."""
        for replica in self.by_id.values():
            if info.device and replica.info.device == info.device:
                return replica.device
        return Device()

    def unequal(self, pinned_fingerprint: str) -> str | None:
        """Return why no registered target may continue a request of this fingerprint, or None."""
        targets = self.targets
        if not targets or any(one.info.fingerprint == pinned_fingerprint for one in targets):
            return None
        return (
            f"the targets that started this request ({pinned_fingerprint}) have left, and "
            f"the remaining targets ({targets[0].info.fingerprint}) might continue with "
            "other tokens; try again"
        )

    def misfit(self, request: Request, *, reads_ids: bool = True) -> InvalidRequestError | None:
        """Return why no registered target can ever finish the request, or None.

        `reads_ids` checks every ID.
        """
        if not self.targets:
            return None
        vocab_size = self.targets[0].info.vocab_size
        brought_back = request.emitted_token_ids, request.resume_token_ids
        for token_ids in (request.prompt_token_ids, *brought_back) if reads_ids else ():
            if token_ids and not 0 <= min(token_ids) <= max(token_ids) < vocab_size:
                return _unknown_id(token_ids, vocab_size)
        # The last token of a request is never fed: it needs no position.
        limit = max([min(one.info.max_model_len, one.longest_len + 1) for one in self.targets])
        return None if request.max_len <= limit else _too_long(request, limit)


def _unknown_id(token_ids: tuple[int, ...], vocab_size: int) -> InvalidRequestError:
    wrong = next(i for i in token_ids if not 0 <= i < vocab_size)
    return InvalidRequestError(f"token id {wrong} is not in 0..{vocab_size - 1}")


def _too_long(request: Request, limit: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"prompt of {len(request.prompt_token_ids)} tokens and max_tokens "
        f"{request.params.max_tokens} make {request.max_len}, the limit is {limit}",
        code="context_length_exceeded",
    )


def _admission_order(target: ReplicaState) -> tuple[int, int, int, str]:
    """Return a key that is lowest for the target to admit to.

    Among targets with half of their blocks free, it is the one with the least sequences, because it
    may wait for a row. If none has half of its blocks free, it is the one with most free blocks.
    """
    num_free = target.num_unreserved_blocks
    is_roomy = 2 * num_free >= target.info.num_blocks
    return not is_roomy, len(target.sequences) if is_roomy else 0, -num_free, target.replica_id
