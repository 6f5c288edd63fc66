"""How a KV cache counts its blocks: the same record for scheduler, replica and memory plan.

A replica sends the record when it registers (`ReplicaInfo`). The scheduler reserves blocks by it,
the replica refuses rows by it, and loading sizes the cache by it, so that the three counts agree.
A new kind of cache is one more record, such as a sliding window or a recurrent state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class KVCacheSpec(Protocol):
    """Block count and bytes of one kind of cache. An implementation is a frozen record.

    A length is a number of positions of one sequence. It counts the cached tokens and those that a
    pass has in flight: pending, prefill and drafted tokens.
    """

    @property
    def block_size(self) -> int:
        """Tokens per block. Sequences that begin alike share whole blocks."""
        ...

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one block over all layers; 0 if the replica does not report them."""
        ...

    @property
    def bytes_per_sequence(self) -> int:
        """Bytes that a sequence takes in addition to its blocks, whatever its length."""
        ...

    @property
    def max_rollback(self) -> int | None:
        """Maximum number of last positions that a sequence can forget; None if any number.

        Forgetting all positions is always possible. The scheduler admits only replicas that can
        forget all drafted tokens of a round.
        """
        ...

    def blocks_for(self, length: int) -> int:
        """Return the blocks of a sequence of `length` positions; 0 for none.

        The number depends on the length alone and never falls when the length grows. The scheduler
        calls it twice per row and round.
        """
        ...

    def max_len(self, num_blocks: int) -> int:
        """Return the greatest length that `num_blocks` blocks hold."""
        ...


@dataclass(frozen=True, slots=True)
class FullAttentionSpec:
    """Keys and values of every position, in blocks. A rollback only gives back blocks."""

    block_size: int
    bytes_per_block: int = 0

    @property
    def bytes_per_sequence(self) -> int:
        return 0

    @property
    def max_rollback(self) -> None:
        return None

    def blocks_for(self, length: int) -> int:
        return -(-length // self.block_size)

    def max_len(self, num_blocks: int) -> int:
        return num_blocks * self.block_size
