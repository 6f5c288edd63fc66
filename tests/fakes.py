"""Models without weights for the tests: their KV cache is the token list itself.

The logits depend on every cached token, so a wrong rollback, a skipped catch-up or a stale slot
becomes a wrong token at once, in milliseconds.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from specdec_core.algorithms.padded.cache import PaddedKV
from specdec_core.errors import OutOfBlocksError
from specdec_core.kv_cache.paged import KVShape
from specdec_core.kv_cache.spec import FullAttentionSpec
from specdec_core.messages import EMPTY_HASH, extend_hash
from specdec_core.model import ForwardInput, ForwardOutput, PrefixCache
from specdec_core.step_times import StepTime

LogitsOf = Callable[[Sequence[int]], Tensor]
MakePaddedKV = Callable[[KVShape, Sequence[int]], PaddedKV]

_TOKEN_SHAPE = KVShape(
    num_layers=1, num_kv_heads=1, head_dim=1, dtype=torch.long, device=torch.device("cpu")
)


class TokenListModel:
    """A CachedModel whose next-token logits are a random function of all the slot's tokens."""

    prefix_cache: PrefixCache | None = None
    step_times: tuple[StepTime, ...] = ()
    recording_s = 0.0

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
        self.tile_rows = 0
        self.num_blocks = num_blocks
        self.kv_cache_spec = FullAttentionSpec(block_size)
        self.max_model_len = max_model_len
        self.num_passes = 0
        self.num_fed = 0
        self._seed = seed
        self._slots: dict[int, list[int]] = {}
        self._num_allocated = 0

    @property
    def num_free_blocks(self) -> int:
        return self.num_blocks - sum(
            self.kv_cache_spec.blocks_for(len(ids)) for ids in self._slots.values()
        )

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

    def wait(self) -> None:
        """Passes are done when they return."""

    def cached_len(self, slot: int) -> int:
        return len(self._slots[slot])

    def rollback(self, slot: int, length: int) -> None:
        del self._slots[slot][length:]

    def forward(self, batch: ForwardInput) -> ForwardOutput:
        assert len(set(batch.slots)) == len(batch.slots), "a slot is fed once per pass"
        counts = zip(batch.slots, batch.token_counts, strict=True)
        needed = sum(self._new_blocks(slot, count) for slot, count in counts)
        if needed > self.num_free_blocks:
            raise OutOfBlocksError(f"{needed} blocks needed, {self.num_free_blocks} free")
        self.num_passes += 1
        self.num_fed += len(batch.token_ids)
        logits = [logits for row in batch.rows() for logits in self._feed(*row)]
        return ForwardOutput(torch.stack(logits) if logits else torch.empty(0, self.vocab_size))

    def _feed(self, slot: int, tokens: Sequence[int], num_logits: int) -> list[Tensor]:
        ids = self._slots[slot]
        assert 0 <= num_logits <= len(tokens)
        ids.extend(tokens)
        assert len(ids) <= self.max_model_len
        first = len(ids) - num_logits + 1
        return [self.logits(ids[:end]) for end in range(first, len(ids) + 1)]

    def _new_blocks(self, slot: int, count: int) -> int:
        length, blocks_for = self.cached_len(slot), self.kv_cache_spec.blocks_for
        return blocks_for(length + count) - blocks_for(length)

    def padded(self) -> PaddedTokenList:
        self.over_padding = PaddedTokenList(self)
        return self.over_padding


class PaddedTokenList:
    """A PaddedLM whose keys are the token ids themselves and whose values are their positions.

    It reads a row through `positions`, as a mask would show it. A token at a wrong one, a token
    that should be hidden and one that is hidden though it should be seen all change the logits.
    """

    view_s = 0.0
    device = torch.device("cpu")

    def __init__(self, model: TokenListModel, make_kv: MakePaddedKV = PaddedKV) -> None:
        self.vocab_size = model.vocab_size
        self.max_model_len = model.max_model_len
        self.max_cached_tokens = model.kv_cache_spec.max_len(model.num_blocks)
        self.batches: weakref.WeakSet[PaddedKV] = weakref.WeakSet()
        """Those that are still alive."""
        self._model = model
        self._make_kv = make_kv

    def new_batch(self, content_lens: Sequence[int]) -> PaddedKV:
        return self._make_kv(_TOKEN_SHAPE, content_lens)

    def forward(self, kv: PaddedKV, batch: ForwardInput) -> ForwardOutput:
        self.batches.add(kv)
        self._model.num_passes += 1
        self._model.num_fed += len(batch.token_ids)
        kv.extend(dict(zip(batch.slots, batch.token_counts, strict=True)))
        for row, tokens, num_logits in batch.rows():
            assert 0 <= num_logits <= len(tokens)
            self._write(kv, row, tokens)
        wanted = zip(batch.slots, batch.num_logits, strict=True)
        logits = [logits for row, count in wanted for logits in self._logits(kv, row, count)]
        return ForwardOutput(torch.stack(logits) if logits else torch.empty(0, self.vocab_size))

    def _write(self, kv: PaddedKV, row: int, tokens: Sequence[int]) -> None:
        end = kv.ends[row]
        columns = slice(end - len(tokens), end)
        ids_BS, positions_BS = self._rectangle(kv)
        ids_BS[row, columns] = torch.tensor(tokens, dtype=torch.long)
        positions_BS[row, columns] = kv.positions(kv.num_columns)[row, columns]

    def _logits(self, kv: PaddedKV, row: int, num_logits: int) -> list[Tensor]:
        ids_BS, positions_BS = self._rectangle(kv)
        position_S = kv.positions(kv.num_columns)[row]
        end = kv.ends[row]
        rows = []
        for last in range(end - num_logits, end):
            is_seen_S = (position_S >= 0) & (position_S <= position_S[last])
            ids = ids_BS[row, is_seen_S].tolist()
            positions = positions_BS[row, is_seen_S].tolist()
            is_contiguous = positions == list(range(len(ids)))
            rows.append(self._model.logits(ids if is_contiguous else [*ids, *positions]))
        return rows

    def _rectangle(self, kv: PaddedKV) -> tuple[Tensor, Tensor]:
        keys, values = kv.pools(0)
        return keys.view(kv.num_rows, -1), values.view(kv.num_rows, -1)


class NoisyCopy(TokenListModel):
    """A draft that agrees with `original` except behind every n-th prefix length."""

    def __init__(self, original: TokenListModel, disagree_every: int, **limits: int) -> None:
        super().__init__(vocab_size=original.vocab_size, seed=original._seed, **limits)
        self._disagree_every = disagree_every

    def logits(self, ids: Sequence[int]) -> Tensor:
        logits = super().logits(ids)
        return logits if len(ids) % self._disagree_every else logits.flip(0)
