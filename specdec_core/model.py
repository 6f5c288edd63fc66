"""The interface between decoding and the models: a causal LM over KV slots.

A slot caches a prefix of one sequence's tokens. These methods hide padding, paging, chunking of
long feeds, devices and kernels. Draft and target are used through the same methods.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from specdec_core.config import Numerics
from specdec_core.kv_cache.spec import KVCacheSpec
from specdec_core.messages import ReplicaInfo, Role
from specdec_core.sampling_params import SamplingParams
from specdec_core.step_times import StepTime

Row = tuple[int, Sequence[int], int]
"""Slot, token IDs to feed to it, and number of the last of them whose logits are wanted."""


class ForwardInput(NamedTuple):
    """Tokens to feed to slots in one call: a column for each fact, an entry for each row.

    Plain integers, so the same input can be sent to every rank of a replica. A slot is in one row,
    and its tokens follow the tokens that it caches.
    """

    slots: Sequence[int]
    token_counts: Sequence[int]
    """Number of tokens that each row feeds."""
    num_logits: Sequence[int]
    """Logits are returned for the last num_logits[i] tokens of a row, 0 to token_counts[i]."""
    token_ids: Sequence[int]
    """Token IDs of all rows, one row after another."""
    taps: tuple[int, ...] = ()
    """Layers, counted from 0, whose input is returned too."""
    starts: Sequence[int] = ()
    """Place of each row's first token in its sequence. The model fills it in from its cache."""

    @classmethod
    def of(
        cls, rows: Iterable[Row], taps: tuple[int, ...] = (), starts: Sequence[int] = ()
    ) -> ForwardInput:
        """Return the columns of `rows`."""
        slots, tokens, num_logits = list(zip(*rows, strict=True)) or ((),) * 3
        return cls(slots, list(map(len, tokens)), num_logits, list(chain(*tokens)), taps, starts)

    def rows(self) -> Iterator[Row]:
        """Yield the rows again."""
        end = 0
        columns = self.slots, self.token_counts, self.num_logits
        for slot, count, num_logits in zip(*columns, strict=True):
            start, end = end, end + count
            yield slot, self.token_ids[start:end], num_logits


class ForwardOutput(NamedTuple):
    """Results of a call, on the model's device."""

    logits: Tensor
    """[sum of num_logits, V >= vocab_size] next-token logits, rows in the order of the input, in
    the model's own number type. Callers that compute with them widen them to float32."""
    features: tuple[Tensor, ...] = ()
    """Input of each layer that the taps name, [number of token IDs, hidden size], in the order of
    the input."""


class ScoringModel(Protocol):
    """The part of a model and its cache that a speculative round uses."""

    @property
    def vocab_size(self) -> int:
        """IDs 0..vocab_size-1 may be chosen (the tokenizer's range, not the padded matrix)."""
        ...

    def cached_len(self, slot: int) -> int: ...

    def rollback(self, slot: int, length: int) -> None:
        """Forget every cached position at or after `length`; a no-op when fewer are cached.

        Blocks that hold no more positions are released. If a shared block has to be copied and none
        is free, raises OutOfBlocksError before anything changed.
        """
        ...

    def forward(self, batch: ForwardInput) -> ForwardOutput:
        """Feed every slot its tokens in one pass; return next-token logits and tapped features.

        Each slot caches its fed tokens afterwards. Raises OutOfBlocksError before anything changed
        when the tokens do not fit, and ModelNotSupportedError for taps that the model cannot
        return.
        """
        ...


DraftChoice = tuple[int, SamplingParams]
"""Maximum tokens to draft for a row, at least 1, and the parameters that choose them."""


@runtime_checkable
class DraftsInOneGo(Protocol):
    """A model that may draft all tokens of a round without the host between them."""

    @property
    def drafts_in_one_go(self) -> bool: ...

    def draft(
        self, batch: ForwardInput, choices: Sequence[DraftChoice], min_confidence: float
    ) -> list[tuple[int, ...]] | None:
        """Feed each row its committed tokens, at least one, then draft by the row's `choices`. No
        rule of a row may depend on its IDs.

        Return the proposals of token-by-token drafting, or None if they need token-by-token
        drafting. A proposal ends before a token less probable than `min_confidence`. Afterwards a
        slot caches its row's tokens and the proposal, without the last token of a proposal of the
        maximum length. Raises OutOfBlocksError before anything changed.
        """
        ...


def score(model: ScoringModel, rows: Iterable[Row]) -> Tensor:
    """Feed `rows` to the model in one call; return their logits."""
    return model.forward(ForwardInput.of(rows)).logits


class PrefixCache(Protocol):
    """Slots of equal beginnings share full blocks (docs/decisions/0009-prefix-cache.md).

    Blocks are found by the IDs themselves. Sequences with different `root` share nothing.
    """

    def publish(self, slot: int, ids: array[int], root: str) -> None:
        """Let other slots find the slot's full blocks, which cache `ids`."""
        ...

    def match_prefix(self, slot: int, ids: array[int], root: str) -> int:
        """Reuse published whole blocks of `ids`, which begin like the slot's own IDs.

        Return the number of tokens that the slot then caches. Takes no block that feeding them
        would not take.
        """
        ...

    def evict(self, slot: int) -> None:
        """Make the slot's blocks unfindable for other slots."""
        ...

    def evict_all(self) -> None:
        """Make all blocks unfindable. Slots keep the blocks that they hold."""
        ...


class CachedModel(ScoringModel, Protocol):
    """A causal LM over KV slots, each with its own length. Not thread-safe; one caller."""

    @property
    def max_model_len(self) -> int: ...

    @property
    def num_blocks(self) -> int:
        """Capacity of the KV cache in blocks."""
        ...

    @property
    def kv_cache_spec(self) -> KVCacheSpec:
        """Rule that counts the blocks of a slot. `num_free_blocks` follows it."""
        ...

    @property
    def tile_rows(self) -> int:
        """Rows that one call of the narrowest linear takes; 0 if any number is one call."""
        ...

    @property
    def step_times(self) -> tuple[StepTime, ...]:
        """Times of passes that were measured when the model was loaded; empty if none were."""
        ...

    @property
    def recording_s(self) -> float:
        """Seconds spent on recording passes of new shapes. Later passes of the same shape do not
        take them again."""
        ...

    @property
    def num_free_blocks(self) -> int:
        """Blocks that can be taken, including those that only the prefix cache keeps."""
        ...

    @property
    def prefix_cache(self) -> PrefixCache | None:
        """The prefix cache; None if slots share nothing."""
        ...

    def allocate(self) -> int:
        """Return a new empty slot. It costs nothing until tokens are fed."""
        ...

    def free(self, slot: int) -> None:
        """Release the slot and its blocks."""
        ...

    def wait(self) -> None:
        """Return when the device has finished its work. A pass whose results were not read may
        still be running."""
        ...


def replica_info(
    model: CachedModel,
    role: Role,
    replica_id: str,
    incarnation: int,
    *,
    model_digest: str = "",
    fingerprint: str = "",
    numerics: Numerics = Numerics.FAST,
    device: str = "",
    max_num_seqs: int = 0,
) -> ReplicaInfo:
    """Return what a replica of this model registers with. See ReplicaInfo for the arguments."""
    return ReplicaInfo(
        replica_id=replica_id,
        role=role,
        incarnation=incarnation,
        num_blocks=model.num_blocks,
        kv_cache_spec=model.kv_cache_spec,
        max_model_len=model.max_model_len,
        vocab_size=model.vocab_size,
        tile_rows=model.tile_rows,
        step_times=model.step_times,
        keeps_prefixes=model.prefix_cache is not None,
        model_digest=model_digest,
        fingerprint=fingerprint,
        numerics=numerics,
        device=device,
        max_num_seqs=max_num_seqs,
    )
