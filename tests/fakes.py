"""Models without weights for the tests: their KV cache is the token list itself.

The logits depend on every cached token, so a wrong rollback, a skipped catch-up or a stale slot
becomes a wrong token at once, in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from specdec_core.errors import OutOfBlocksError
from specdec_core.leases import EMPTY_HASH, extend_hash
from specdec_core.models.cached_model import Feed

LogitsOf = Callable[[Sequence[int]], Tensor]


class TokenListModel:
    """A CachedModel whose next-token logits are a random function of all the slot's tokens."""

    def __init__(
        self,
        *,
        vocab_size: int = 31,
        seed: int = 0,
        num_blocks: int = 10_000,
        block_size: int = 4,
        max_model_len: int = 4096,
    ) -> None:
        self.vocab_size = vocab_size
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.max_model_len = max_model_len
        self.num_passes = 0
        self._seed = seed
        self._slots: dict[int, list[int]] = {}
        self._num_allocated = 0

    @property
    def num_free_blocks(self) -> int:
        return self.num_blocks - sum(self._blocks(len(ids)) for ids in self._slots.values())

    @property
    def num_slots(self) -> int:
        return len(self._slots)

    def logits(self, ids: Sequence[int]) -> Tensor:
        """Next-token logits behind `ids`, [V]."""
        mixed = extend_hash(extend_hash(EMPTY_HASH, (self._seed,)), ids)
        generator = torch.Generator().manual_seed(mixed % 2**63)
        return 2.0 * torch.randn(self.vocab_size, generator=generator)

    def allocate(self) -> int:
        self._num_allocated += 1
        self._slots[self._num_allocated] = []
        return self._num_allocated

    def free(self, slot: int) -> None:
        del self._slots[slot]

    def cached_len(self, slot: int) -> int:
        return len(self._slots[slot])

    def rollback(self, slot: int, length: int) -> None:
        del self._slots[slot][length:]

    def score(self, feeds: Sequence[Feed]) -> Tensor:
        assert len({feed.slot for feed in feeds}) == len(feeds), "a slot is fed once per pass"
        needed = sum(self._new_blocks(feed) for feed in feeds)
        if needed > self.num_free_blocks:
            raise OutOfBlocksError(f"{needed} blocks needed, {self.num_free_blocks} free")
        self.num_passes += 1
        rows = [row for feed in feeds for row in self._feed(feed)]
        return torch.stack(rows) if rows else torch.empty(0, self.vocab_size)

    def _feed(self, feed: Feed) -> list[Tensor]:
        ids = self._slots[feed.slot]
        assert 0 <= feed.num_logits <= len(feed.tokens)
        ids.extend(feed.tokens)
        assert len(ids) <= self.max_model_len
        first = len(ids) - feed.num_logits + 1
        return [self.logits(ids[:end]) for end in range(first, len(ids) + 1)]

    def _blocks(self, length: int) -> int:
        return -(-length // self.block_size)

    def _new_blocks(self, feed: Feed) -> int:
        length = self.cached_len(feed.slot)
        return self._blocks(length + len(feed.tokens)) - self._blocks(length)


class NoisyCopy(TokenListModel):
    """A draft that agrees with `original` except behind every n-th prefix length."""

    def __init__(self, original: TokenListModel, disagree_every: int, **limits: int) -> None:
        super().__init__(vocab_size=original.vocab_size, seed=original._seed, **limits)
        self._disagree_every = disagree_every

    def logits(self, ids: Sequence[int]) -> Tensor:
        logits = super().logits(ids)
        return logits if len(ids) % self._disagree_every else logits.flip(0)
