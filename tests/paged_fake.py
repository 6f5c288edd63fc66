"""A model without weights over real KV blocks: a wrong block is a wrong token at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specdec_core.kv_cache.paged import KVShape, PagedKV
from specdec_core.model import ForwardInput, ForwardOutput
from tests.fakes import TokenListModel

_SHAPE = KVShape(
    num_layers=1, num_kv_heads=1, head_dim=1, dtype=torch.long, device=torch.device("cpu")
)


class PagedTokenModel(TokenListModel):
    """Its keys are the token ids and its values their positions, read through the block tables.

    With `disagree_every` it is a draft that differs from a target of the same seed behind every
    n-th length.
    """

    def __init__(
        self,
        *,
        num_blocks: int = 1000,
        block_size: int = 4,
        enable_prefix_caching: bool = True,
        disagree_every: int | None = None,
        vocab_size: int = 31,
        seed: int = 0,
    ) -> None:
        super().__init__(
            vocab_size=vocab_size, seed=seed, num_blocks=num_blocks, block_size=block_size
        )
        self.kv = PagedKV(_SHAPE, num_blocks, block_size)
        self.prefix_cache = self.kv if enable_prefix_caching else None
        self.disagree_every = disagree_every
        self.slots: set[int] = set()
        self.fails = False
        """The next pass raises behind its writes."""

    @property
    def num_free_blocks(self) -> int:
        return self.kv.num_free_blocks

    @property
    def num_slots(self) -> int:
        return len(self.slots)

    def logits(self, ids: Sequence[int]) -> Tensor:
        logits = super().logits(ids)
        disagrees = self.disagree_every is not None and len(ids) % self.disagree_every == 0
        return logits.flip(0) if disagrees else logits

    def allocate(self) -> int:
        slot = self.kv.allocate()
        self.slots.add(slot)
        return slot

    def free(self, slot: int) -> None:
        self.slots.remove(slot)
        self.kv.free(slot)

    def cached_len(self, slot: int) -> int:
        return self.kv.cached_len(slot)

    def rollback(self, slot: int, length: int) -> None:
        self.kv.rollback(slot, length)

    def forward(self, batch: ForwardInput) -> ForwardOutput:
        starts = [self.kv.cached_len(slot) for slot in batch.slots]
        self.kv.extend(dict(zip(batch.slots, batch.token_counts, strict=True)))
        self.num_passes += 1
        self.num_fed += len(batch.token_ids)
        for (slot, tokens, _), start in zip(batch.rows(), starts, strict=True):
            self._write(slot, tokens, start)
        if self.fails:
            for slot, start in zip(batch.slots, starts, strict=True):
                self.kv.rollback(slot, start)
            raise RuntimeError("the pass failed")
        wanted = zip(batch.slots, batch.num_logits, strict=True)
        logits = [logits for row in wanted for logits in self._logits(*row)]
        return ForwardOutput(torch.stack(logits) if logits else torch.empty(0, self.vocab_size))

    def cached_ids(self, slot: int) -> list[int]:
        """What the slot's blocks say; its positions must count up from 0."""
        places = self._places(slot)
        keys, values = self.kv.pools(0)
        assert values[places].flatten().tolist() == list(range(len(places)))
        ids: list[int] = keys[places].flatten().tolist()
        return ids

    def _write(self, slot: int, tokens: Sequence[int], start: int) -> None:
        keys, values = self.kv.pools(0)
        for index, token in enumerate(tokens, start):
            place = self._places(slot)[index]
            keys[place], values[place] = token, index

    def _logits(self, slot: int, num_logits: int) -> list[Tensor]:
        ids = self.cached_ids(slot)
        first = len(ids) - num_logits + 1
        return [self.logits(ids[:end]) for end in range(first, len(ids) + 1)]

    def _places(self, slot: int) -> list[int]:
        size = self.kv.block_size
        table = self.kv.block_table(slot)
        return [table[i // size] * size + i % size for i in range(self.kv.cached_len(slot))]
