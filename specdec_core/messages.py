"""The messages between the scheduler and a replica: groups out, results in. Plain data, IDs only.

A lease is one group message. Its rows name a sequence, the prefix that the replica should already
cache (`base_len`, checked by `base_hash`) and the tokens to feed after it. The replica first
truncates its slot to `base_len`; there is no other rollback. Prefill, an ordinary round, a
rejection, a full acceptance and recovery are therefore the same message (algorithm.md, the
cached-prefix rule).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import NamedTuple

from specdec_core.config import Numerics
from specdec_core.kv_cache.spec import KVCacheSpec
from specdec_core.logprobs import TokenLogprobs
from specdec_core.sampling_params import SamplingRules
from specdec_core.step_times import StepTime

_MASK64 = (1 << 64) - 1

EMPTY_HASH = 0x9E3779B97F4A7C15
"""Hash of the empty prefix."""


def extend_hash(prefix_hash: int, token_ids: Iterable[int]) -> int:
    """Return the hash of a prefix of IDs followed by `token_ids`, an unsigned 64-bit integer."""
    return [prefix_hash, *hashes_behind(prefix_hash, token_ids)][-1]


def hashes_behind(prefix_hash: int, token_ids: Iterable[int]) -> list[int]:
    """Return the hashes of the prefix followed by the first one, two, ... of `token_ids`."""
    hashes = []
    for token_id in token_ids:
        mixed = (prefix_hash ^ (token_id + 1)) * 0xBF58476D1CE4E5B9 & _MASK64
        prefix_hash = mixed ^ (mixed >> 29)
        hashes.append(prefix_hash)
    return hashes


class Role(StrEnum):
    """Role of a replica: verify or draft."""

    TARGET = "target"
    DRAFT = "draft"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaInfo:
    """Facts that a replica reports when it registers."""

    replica_id: str
    role: Role
    incarnation: int
    """Random number. A restarted replica has another one."""
    num_blocks: int
    """Capacity of its KV cache in blocks."""
    kv_cache_spec: KVCacheSpec
    """Rule that counts the blocks of a sequence."""
    max_model_len: int
    vocab_size: int
    """Size of the tokenizer's ID range that the model may choose from."""
    model_digest: str
    fingerprint: str = ""
    """Device type, dtype, kernels and pinned shapes. Equal fingerprints replay bit for bit."""
    tile_rows: int = 0
    """Rows that one call of its narrowest linear takes; 0 if all rows cost the same."""
    numerics: Numerics = Numerics.FAST
    """Numerics of the replica. Only EXACT promises that a replay gives the same bits."""
    device: str = ""
    """Name of its accelerator. Replicas of one name take turns. Empty: the replica has its own."""
    keeps_prefixes: bool = False
    """True if a sequence finds the cached blocks of other sequences with the same beginning."""
    step_times: tuple[StepTime, ...] = ()
    """Times of passes that were measured at its start; empty if none were."""
    max_num_seqs: int = 0
    """Rows of a group up to which more rows still gain. 0: the scheduler's configuration
    decides."""


class LeaseRow(NamedTuple):
    """One sequence's part of a group. A tuple, because the scheduler makes one per sequence and
    round: 0.6 us, while a frozen dataclass takes 2.7."""

    sequence_id: int
    base_len: int
    base_hash: int
    """Hash of ids[:base_len] (`extend_hash`)."""
    new_ids: tuple[int, ...]
    """Committed IDs after base_len, the catch-up. If the row samples, they end with the pending
    token. If not, they are a shorter chunk."""
    proposal: tuple[int, ...] = ()
    """TARGET: drafted tokens to check after `new_ids`."""
    num_choices: int = 0
    """Tokens to sample. TARGET: len(proposal) + 1, or 0 for a catch-up chunk that commits nothing.
    DRAFT: maximum tokens to draft, or 0 for a catch-up."""
    num_scored: int = 0
    """Number of tokens of new_ids[1:], from the first on, whose log-probabilities a TARGET
    reports."""
    rules: SamplingRules | None = None
    """Sent on the sequence's first use on this replica, None afterwards."""

    @property
    def end_len(self) -> int:
        """Committed tokens that the slot will cache after this row."""
        return self.base_len + len(self.new_ids)

    @property
    def shape(self) -> tuple[int, int]:
        """Cached tokens and fed tokens. Rows of equal shape share a pass without waste."""
        return self.base_len, len(self.new_ids) + len(self.proposal)


_MAX_ROUND_IDS = 4
"""Maximum fed IDs of a row that counts as a round for any K."""


def is_round(row: LeaseRow) -> bool:
    """Return True if the row's time is that of a round. More fed IDs are a catch-up."""
    return row.num_choices > 0 and len(row.new_ids) <= max(_MAX_ROUND_IDS, row.num_choices + 1)


class GroupLease(NamedTuple):
    """Rows that one replica runs in one pass."""

    lease_id: int
    epoch: int
    """Random number per coordinator life; compared for equality only."""
    replica_id: str
    role: Role
    rows: tuple[LeaseRow, ...]
    ttl_s: float
    """Relative time to live in seconds. The replica is fenced if no result came by then."""
    min_confidence: float = 0.0
    """DRAFT: a proposal ends before the first token with a lower probability in the draft."""


class ReplicaMetric(NamedTuple):
    """How a field of Occupancy appears on the metrics page, with a value per replica."""

    name: str
    """Name after `specdec_replica_`."""
    kind: str
    """counter (a total since the replica's start) or gauge (a present value)."""
    text: str
    unit: str = ""
    """Unit in OpenTelemetry's notation: s, {token}."""


def _metric(name: str, kind: str, text: str, unit: str = "") -> float:
    metric = ReplicaMetric(name, kind, text, unit)
    default: float = field(default=0.0, metadata={ReplicaMetric: metric})
    return default


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """A replica's own counts: the contents of its KV cache now, and totals since its start.

    A new metric of each replica is one field made by `_metric`: wire, status and metrics page read
    the fields from here. Replica.occupancy fills it.
    """

    num_slots: int = 0
    num_free_blocks: int = 0
    num_prefix_queries: int = 0
    """Prompt tokens that the replica was given to cache. Those of a preempted sequence count
    again."""
    num_prefix_hits: int = 0
    """Prompt tokens found in the prefix cache."""
    recording_s: float = _metric(
        "recording_seconds", "counter", "Time spent on recording passes of new shapes.", "s"
    )


REPLICA_METRICS: dict[str, ReplicaMetric] = {
    one.name: one.metadata[ReplicaMetric]
    for one in fields(Occupancy)
    if ReplicaMetric in one.metadata
}
"""Field of Occupancy -> its metric."""


class RowStatus(StrEnum):
    OK = "ok"
    KV_MISS = "kv_miss"
    """The slot does not cache ids[:base_len]. `cached_len` is the length that it has."""
    NO_ROOM = "no_room"
    """No free KV block; nothing was fed."""
    FAILED = "failed"
    """This row alone failed; `error` has the reason."""
    INVALID = "invalid"
    """The row's rules cannot be satisfied; `error` has the reason."""
    NOT_READY = "not_ready"
    """TARGET: the row's grammar is still being computed. Nothing was fed; lease the row again."""


TARGET, DRAFT, OK = Role.TARGET, Role.DRAFT, RowStatus.OK
"""For code that runs per row. On Python 3.11 a global takes 2 ns, and `Role.TARGET` takes 45."""


class RowResult(NamedTuple):
    """Result of a row. A tuple, as LeaseRow is."""

    sequence_id: int
    status: RowStatus = RowStatus.OK
    cached_len: int = 0
    """Positions of the slot that are valid for the committed IDs plus `tokens`, a prefix of them.
    For KV_MISS, the length that the replica has (0 = send everything)."""
    tokens: tuple[int, ...] = ()
    """TARGET: the accepted drafts and the next token. DRAFT: the proposal. Empty for catch-up."""
    num_accepted: int = 0
    """TARGET: number of drafted tokens in `tokens`."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    """TARGET: one entry per token if the request asked for them, otherwise empty."""
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    """TARGET: `num_scored` entries of the lease's row."""
    error: str = ""
    num_matched: int = 0
    """TARGET: prompt tokens of the row's new IDs that were found in the prefix cache."""


class GroupResult(NamedTuple):
    """Result of a lease."""

    lease_id: int
    epoch: int
    replica_id: str
    rows: tuple[RowResult, ...]
    seconds: float = 0.0
    """Seconds that the replica spent on the group, by its own clock."""
    recording_s: float = 0.0
    """Part of `seconds` that was spent on recording passes of new shapes. Later passes do not take
    it."""
