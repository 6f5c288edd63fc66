"""The paper's invariants of a left-padded batch, asserted between rounds if a test asks for it.

Row i has p_i columns of padding and c_i content tokens. L is the number of columns, the last of
which belongs to the pending token, which has no KV yet.
I1 p_i + c_i = L for every row. I2 positions count content tokens from 0, and nothing else is seen.
I3 the cache holds c_i - 1 tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from specdec_core.algorithms.padded.cache import PaddedKV


def check_invariants(kv: PaddedKV, content_lens: Sequence[int]) -> None:
    """Assert I1 to I3 for a target's batch; `content_lens` counts committed tokens."""
    check_pending(kv, content_lens)
    check_rectangle(kv, content_lens)
    check_positions(kv)


def check_rectangle(kv: PaddedKV, content_lens: Sequence[int]) -> None:
    """Assert I1: all contents end in the same column."""
    ends = [start + length for start, length in zip(kv.starts, content_lens, strict=True)]
    assert len(set(ends)) <= 1, f"I1: contents end in columns {ends}, not together"


def check_positions(kv: PaddedKV) -> None:
    """Assert I2: a row sees exactly its cached tokens, at positions 0, 1, 2 ..."""
    position_BL = kv.positions(kv.width).cpu()
    for row, (end, length) in enumerate(zip(kv.ends, kv.cached_lens, strict=True)):
        position_L = position_BL[row, :end]
        seen = position_L[position_L >= 0].tolist()
        assert seen == list(range(length)), f"I2: row {row} of {length} has positions {seen}"


def check_pending(kv: PaddedKV, content_lens: Sequence[int]) -> None:
    """Assert I3: only the last committed token has no KV."""
    expected = [length - 1 for length in content_lens]
    assert kv.cached_lens == expected, f"I3: {kv.cached_lens} tokens cached, {expected} expected"
