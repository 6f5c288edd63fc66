"""The seam between decoding and the models: a causal LM over KV slots.

A slot caches a prefix of one sequence's tokens. Padding, paging, chunking of long feeds, devices
and kernels hide behind these methods; draft and target are used through the same ones.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from specdec_core.sampling_params import SamplingParams
from specdec_core.step_times import StepTime


class Feed(NamedTuple):
    """Tokens to feed behind what `slot` caches."""

    slot: int
    tokens: Sequence[int]
    num_logits: int
    """Logits are returned for the last `num_logits` fed tokens; 0 <= num_logits <= len(tokens)."""


class ScoringModel(Protocol):
    """What a speculative round asks of a model and its cache."""

    @property
    def vocab_size(self) -> int:
        """Ids 0..vocab_size-1 may be chosen (the tokenizer's range, not the padded matrix)."""
        ...

    def cached_len(self, slot: int) -> int: ...

    def rollback(self, slot: int, length: int) -> None:
        """Forget every cached position at or after `length`; a no-op when fewer are cached.

        Blocks that hold no position any more are given back. Raises OutOfBlocksError before
        anything changed when a block that is shared has to be copied and none is free.
        """
        ...

    def score(self, feeds: Sequence[Feed]) -> Tensor:
        """Feed every slot its tokens in one pass; return next-token logits.

        Shape [sum of num_logits, V >= vocab_size], rows in the order of `feeds`, in the model's own
        type of numbers: whoever computes with them widens them to float32. Each slot caches
        its fed tokens afterwards. Raises OutOfBlocksError before anything changed when the tokens
        do not fit.
        """
        ...


class DraftRow(NamedTuple):
    """A sequence that a draft continues by parameters alone: no rule looks at its ids."""

    slot: int
    new_ids: Sequence[int]
    """Committed tokens behind what `slot` caches, at least one."""
    num_choices: int
    """Most tokens to draft, at least 1."""
    params: SamplingParams


@runtime_checkable
class DraftsInOneGo(Protocol):
    """A model that may draft all tokens of a round without the host between them."""

    @property
    def drafts_in_one_go(self) -> bool: ...

    def draft(
        self, rows: Sequence[DraftRow], min_confidence: float
    ) -> list[tuple[int, ...]] | None:
        """Proposals as those of a draft that is asked token by token, or None where it must be.

        A proposal ends before a token less probable than `min_confidence`. Afterwards a slot caches
        its row's tokens and what was proposed, but the last of num_choices. Raises OutOfBlocksError
        before anything changed.
        """
        ...


class PrefixCache(Protocol):
    """Slots of equal beginnings share full blocks (docs/decisions/0009-prefix-cache.md).

    Names go by the ids themselves. `root` keeps those apart that may not share.
    """

    def publish(self, slot: int, ids: array[int], root: str) -> None:
        """Let others find the slot's full blocks, which cache `ids`."""
        ...

    def adopt(self, slot: int, ids: array[int], root: str) -> int:
        """Cache as much of `ids`, which begin like the slot's own, as is found in whole blocks.

        Returns how many tokens the slot caches then. Takes no block that feeding them would not.
        """
        ...

    def withdraw(self, slot: int) -> None:
        """No other slot finds what this one holds any more."""
        ...

    def withdraw_all(self) -> None:
        """What slots hold stays theirs; nobody finds any of it any more."""
        ...


class CachedModel(ScoringModel, Protocol):
    """A causal LM over KV slots with lengths of their own. Not thread-safe; one caller."""

    @property
    def max_model_len(self) -> int: ...

    @property
    def num_blocks(self) -> int:
        """Capacity of the KV cache in blocks of `block_size` tokens."""
        ...

    @property
    def block_size(self) -> int: ...

    @property
    def tile_rows(self) -> int:
        """Rows that one call of the narrowest linear takes; 0 where any number is one call."""
        ...

    @property
    def step_times(self) -> tuple[StepTime, ...]:
        """What passes took when they were timed as it was loaded; empty where none were."""
        ...

    @property
    def recording_s(self) -> float:
        """Seconds that it has spent on recording passes of new shapes: what comes later of the same
        shape does not take them again."""
        ...

    @property
    def num_free_blocks(self) -> int:
        """Blocks that can be taken; what only the prefix cache keeps is among them."""
        ...

    @property
    def prefix_cache(self) -> PrefixCache | None:
        """None where slots share nothing."""
        ...

    def allocate(self) -> int:
        """A new empty slot. Costs nothing until tokens are fed."""
        ...

    def free(self, slot: int) -> None:
        """Give the slot and its blocks back."""
        ...

    def wait(self) -> None:
        """Return when the device has done what was asked of it: a pass of which nothing was read
        may still be under way."""
        ...
