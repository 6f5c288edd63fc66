"""The messages between the pool and a replica: groups out, results in. Plain data, ids only.

A lease is one group message. Its rows name a sequence, the prefix that the replica should already
cache (`base_len`, checked by `base_hash`) and what to feed behind it. The replica's first act is to
truncate its slot to `base_len`: there is no other rollback. Prefill, an ordinary round, a
rejection, a full acceptance and recovery are therefore the same message (algorithm.md, the
cached-prefix rule).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from specdec_core.choice_rules import SamplingRules
from specdec_core.config import Numerics
from specdec_core.logprobs import TokenLogprobs
from specdec_core.step_times import StepTime

_MASK64 = (1 << 64) - 1

EMPTY_HASH = 0x9E3779B97F4A7C15
"""Hash of the empty prefix."""


def extend_hash(prefix_hash: int, token_ids: Iterable[int]) -> int:
    """Hash of a prefix of ids followed by `token_ids`; an unsigned 64-bit integer."""
    return [prefix_hash, *hashes_behind(prefix_hash, token_ids)][-1]


def hashes_behind(prefix_hash: int, token_ids: Iterable[int]) -> list[int]:
    """Hash of the prefix followed by the first of `token_ids`, by the first two, and so on."""
    hashes = []
    for token_id in token_ids:
        mixed = (prefix_hash ^ (token_id + 1)) * 0xBF58476D1CE4E5B9 & _MASK64
        prefix_hash = mixed ^ (mixed >> 29)
        hashes.append(prefix_hash)
    return hashes


class Role(StrEnum):
    """What a replica does with a group."""

    TARGET = "target"
    DRAFT = "draft"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaInfo:
    """What a replica says of itself when it registers."""

    replica_id: str
    role: Role
    incarnation: int
    """Random; a restarted replica has another one."""
    num_blocks: int
    block_size: int
    """Tokens per KV block."""
    max_model_len: int
    vocab_size: int
    """Size of the tokenizer's id range that the model may choose from."""
    model_digest: str
    fingerprint: str = ""
    """Device type, dtype, kernels and pinned shapes: equal fingerprints replay bit for bit."""
    tile_rows: int = 0
    """Rows that one call of its narrowest linear takes; 0 where rows cost alike."""
    numerics: Numerics = Numerics.FAST
    """What it keeps. Only EXACT promises that a replay gives the same bits."""
    device: str = ""
    """Names its accelerator: replicas of one name take turns. Empty: it has one of its own."""
    keeps_prefixes: bool = False
    """Whether a sequence finds what others of the same beginning have left cached."""
    step_times: tuple[StepTime, ...] = ()
    """What passes took when they were timed at its start; empty where none were."""
    max_num_seqs: int = 0
    """Rows of a group up to which more still gain; 0 leaves that to the pool's configuration."""


class LeaseRow(NamedTuple):
    """One sequence's part of a group. A tuple, because the pool makes one per sequence and round:
    0.6 us, where a frozen dataclass takes 2.7."""

    sequence_id: int
    base_len: int
    base_hash: int
    """Hash of ids[:base_len] (`extend_hash`)."""
    new_ids: tuple[int, ...]
    """Committed ids behind base_len: catch-up, up to and including the pending token when the row
    is to choose; a shorter chunk when it is not."""
    proposal: tuple[int, ...] = ()
    """TARGET: drafted tokens to check behind `new_ids`."""
    num_choices: int = 0
    """Tokens to choose. TARGET: len(proposal) + 1, or 0 for a catch-up chunk that commits nothing.
    DRAFT: how many tokens to draft at most, or 0 for a catch-up."""
    num_scored: int = 0
    """TARGET: log-probabilities are reported of so many of new_ids[1:], from the first of them."""
    rules: SamplingRules | None = None
    """Sent on the sequence's first use on this replica, None afterwards."""

    @property
    def end_len(self) -> int:
        """Committed tokens that the slot will cache after this row."""
        return self.base_len + len(self.new_ids)

    def fed_behind(self, length: int) -> tuple[int, ...]:
        """Those of `new_ids` that stand behind the first `length` ids."""
        num_known = length - self.base_len
        return self.new_ids[num_known:] if num_known else self.new_ids

    @property
    def shape(self) -> tuple[int, int]:
        """Equal for rows that a pass takes together without waste: what is cached, what is fed."""
        return self.base_len, len(self.new_ids) + len(self.proposal)


_MAX_ROUND_IDS = 4
"""Maximum number of fed ids of a row that is a round, whatever its length."""


def is_round(row: LeaseRow) -> bool:
    """Whether the row's time is that of a round: more fed ids are a catch-up."""
    return row.num_choices > 0 and len(row.new_ids) <= max(_MAX_ROUND_IDS, row.num_choices + 1)


class GroupLease(NamedTuple):
    """Rows that one replica runs in one pass."""

    lease_id: int
    epoch: int
    """Random per coordinator life; compared for equality only."""
    replica_id: str
    role: Role
    rows: tuple[LeaseRow, ...]
    ttl_s: float
    """Relative time to live: the replica is fenced when no result came by then."""
    min_confidence: float = 0.0
    """DRAFT: a proposal ends before the first token that the draft gives less probability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """What a replica's KV cache holds now, and what sharing has saved since its start."""

    num_slots: int = 0
    num_free_blocks: int = 0
    num_prefix_queries: int = 0
    """Prompt tokens that it was given to cache, a preempted sequence's once more."""
    num_prefix_hits: int = 0
    """Those of them that other sequences had left."""


class RowStatus(StrEnum):
    OK = "ok"
    KV_MISS = "kv_miss"
    """The slot does not cache ids[:base_len]; `cached_len` says what it does offer."""
    NO_ROOM = "no_room"
    """No free KV block; nothing was fed."""
    FAILED = "failed"
    """This row alone failed; `error` says how."""
    INVALID = "invalid"
    """What this row's rules ask cannot be done; `error` says why."""
    NOT_READY = "not_ready"
    """TARGET: the row's grammar is still being computed. Nothing was fed; lease the row again."""


class RowResult(NamedTuple):
    """What came of a row. A tuple, as LeaseRow is."""

    sequence_id: int
    status: RowStatus = RowStatus.OK
    cached_len: int = 0
    """Positions of the slot that are valid for the committed ids plus `tokens` (a prefix of them);
    for KV_MISS what the replica has (0 = send everything)."""
    tokens: tuple[int, ...] = ()
    """TARGET: the accepted drafts and the next token. DRAFT: the proposal. Empty for catch-up."""
    num_accepted: int = 0
    """TARGET: how many of `tokens` were drafted."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    """TARGET: one per token when the request asked for them, else empty."""
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    """TARGET: `num_scored` of the lease's row."""
    error: str = ""
    num_found: int = 0
    """TARGET: prompt tokens of the row's new ids that the prefix cache had."""


class GroupResult(NamedTuple):
    """What came of a lease."""

    lease_id: int
    epoch: int
    replica_id: str
    rows: tuple[RowResult, ...]
    seconds: float = 0.0
    """Time the replica spent on the group, by its own clock."""
    recording_s: float = 0.0
    """Of `seconds`, those spent on recording passes of new shapes: later ones do not take them."""
