"""Finds, at load and by measuring, the shapes in which attention gives a query the same bits.

A query's bits must not depend on the other queries of its row or on the other rows of the call. A
longer row, which rounds up the number of keys, must not change them either. Kernels read keys in
blocks. At some lengths they sum an incomplete last block in another order, so those lengths are not
used. Shape legend as in attention/sdpa.py; N positions of the probe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from specdec_core.batch_invariance.size_classes import cheapest_run
from specdec_core.errors import NotExactError
from specdec_core.kv_cache.paged import KVShape
from specdec_core.layers.attention.metadata import AttentionShape, SizeRange, causal_mask
from specdec_core.layers.attention.sdpa import attend_rows

_MAX_QUERIES = 32
"""Maximum queries of a row that are tried. A longer chunk becomes several rows."""
_TYPICAL_QUERIES = (1, 2, 5, 9)
_CALL_COST = 8
"""Queries that take about as long as gathering a row's keys."""
_KEY_STEP = 64
_KEY_PERIOD = 512
"""Whole blocks of keys. torch reads this number of keys per step on a CPU, and multiples keep every
bit."""
_PAIRED = 32
"""Maximum distance of keys whose values cancel. Queries at the end of such a stretch see rounding
alone."""
_POSITIONS = (31, 95, 223, 255, 319, 383, 447, 511, 543, 735, 863, 1023, 1311, 1951)
"""Positions whose queries are compared. Each is the last of its pairs."""
_FLOAT32_BITS = 24
_SPREAD = 6
"""Powers of two, up and down, over which the numbers are spread. Without a spread, bfloat16
products add up exactly."""
_MAX_PROBE = 4096
"""Maximum key length that is tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Probe:
    """One sequence's queries, keys and values, made so that a change of order shows."""

    query: Tensor
    """[N, H, D]"""
    key: Tensor
    """[1, K, N, D]"""
    value: Tensor
    """[1, K, N, D]"""
    scaling: float

    def attend(self, positions: Sequence[int], num_queries: int, key_len: int) -> Tensor:
        """Attend with the queries at `positions` and the next ones, a row for each one; return [R,
        Q, H, D]."""
        queries = [p + i for p in positions for i in range(num_queries)]
        query_index = torch.tensor(queries, device=self.query.device)
        output_THD = attend_rows(
            self.query[query_index],
            self.key[:, :, :key_len].expand(len(positions), -1, -1, -1).contiguous(),
            self.value[:, :, :key_len].expand(len(positions), -1, -1, -1).contiguous(),
            causal_mask(
                query_index.view(len(positions), -1),
                key_len,
                self.query.shape[1] // self.key.shape[1],
                self.query.dtype,
            ),
            self.scaling,
        )
        return output_THD.view(len(positions), num_queries, *output_THD.shape[1:])


@torch.inference_mode()
def find_attention_shape(kv: KVShape, num_heads: int, max_model_len: int) -> AttentionShape:
    """Return a range of queries per row and the finest key rounding that keep every bit.

    Raises NotExactError if not even whole blocks of keys keep them.
    """
    heads_per_kv_head = num_heads // kv.num_kv_heads
    if kv.device.type == "cpu":  # heads are calls of their own there
        kv = replace(kv, num_kv_heads=min(kv.num_kv_heads, 2))
    length = min(-(-max_model_len // _KEY_PERIOD) * _KEY_PERIOD, _MAX_PROBE)
    probes = [
        make(kv, heads_per_kv_head * kv.num_kv_heads, length + _MAX_QUERIES)
        for make in (_score_probe, _value_probe)
    ]
    queries = _find_query_range(probes, length)
    key_lens = [
        key_len
        for key_len in range(_KEY_STEP, _KEY_PERIOD, _KEY_STEP)
        if all(_reads_like_whole(probe, queries, key_len, length) for probe in probes)
    ]
    shape = AttentionShape(queries=queries, key_lens=(*key_lens, _KEY_PERIOD))
    if not all(_is_independent(probe, shape, length) for probe in probes):
        raise NotExactError(
            f"attention ({num_heads} heads of {kv.head_dim}, {kv.dtype}, {kv.device}) "
            "changes bits with the keys or rows of other sequences, even if lengths are "
            f"multiples of {_KEY_PERIOD}"
        )
    return shape


def _find_query_range(probes: Sequence[_Probe], length: int) -> SizeRange:
    sizes = range(1, _MAX_QUERIES + 1)
    key_len = min(length, 2 * _KEY_PERIOD)
    results = ([_result_in_rows_of(probe, size, key_len) for probe in probes] for size in sizes)
    agree = [
        all(_agree(a, b) for a, b in zip(shorter, longer, strict=True))
        for shorter, longer in pairwise(results)
    ]
    return cheapest_run(agree, _TYPICAL_QUERIES, _CALL_COST)


def _result_in_rows_of(probe: _Probe, size: int, key_len: int) -> Tensor | None:
    """Return the results in rows of `size` queries, or None if a query's place in its row changes
    bits."""
    positions = _compared_positions(key_len - size)
    output_RQHD = probe.attend(positions, size, key_len)
    for shift in {size // 2, size - 1} - {0}:
        late = [position for position in positions if position >= shift]
        shifted_RQHD = probe.attend([position - shift for position in late], size, key_len)
        if not torch.equal(shifted_RQHD[:, shift:], output_RQHD[-len(late) :, :-shift]):
            return None
    return output_RQHD


def _agree(shorter_RQHD: Tensor | None, longer_RQHD: Tensor | None) -> bool:
    if shorter_RQHD is None or longer_RQHD is None:
        return False
    num_rows, num_queries = longer_RQHD.shape[0], shorter_RQHD.shape[1]
    return torch.equal(shorter_RQHD[:num_rows], longer_RQHD[:, :num_queries])


def _reads_like_whole(probe: _Probe, queries: SizeRange, key_len: int, length: int) -> bool:
    """Return True if a last block of `key_len` keys gives the same as a whole block, at any
    start."""
    for first in range(0, min(length, 3 * _KEY_PERIOD), _KEY_PERIOD):
        for num_queries in _query_counts(queries):
            last = min(first + key_len, length) - num_queries
            positions = [
                first + p for p in range(_PAIRED - 1, key_len, _PAIRED) if first + p <= last
            ]
            rows = [
                probe.attend(positions, num_queries, first + size)
                for size in (key_len, _KEY_PERIOD)
            ]
            if not torch.equal(*rows):
                return False
    return True


def _is_independent(probe: _Probe, shape: AttentionShape, length: int) -> bool:
    """Return True if rows alone, at their own key length, equal rows in a batch at longer ones."""
    for num_queries in _query_counts(shape.queries):
        positions = _compared_positions(length - num_queries)
        alone = [probe.attend([p], num_queries, shape.key_len(p + num_queries)) for p in positions]
        for key_len in _key_lens(shape, length):
            seen = [p for p in positions if p + num_queries <= key_len]
            if not torch.equal(
                probe.attend(seen, num_queries, key_len), torch.cat(alone)[: len(seen)]
            ):
                return False
    return True


def _query_counts(queries: SizeRange) -> list[int]:
    return sorted({queries.low, min(5, queries.high), queries.high})


def _compared_positions(last: int) -> list[int]:
    return [position for position in _POSITIONS if position <= last]


def _key_lens(shape: AttentionShape, length: int) -> list[int]:
    """Return all key lengths that are used in the first blocks, then whole blocks."""
    lens = {shape.key_len(n) for n in range(_KEY_STEP, 3 * _KEY_PERIOD + 1, _KEY_STEP)}
    lens |= set(range(_KEY_PERIOD, length + 1, _KEY_PERIOD))
    return sorted(n for n in lens if n <= length and n >= _POSITIONS[0] + shape.queries.high)


def _score_probe(kv: KVShape, num_heads: int, length: int) -> _Probe:
    """Make queries and keys whose products cancel. The scores are rounding alone, scaled up."""
    generator = torch.Generator().manual_seed(0)
    half = kv.head_dim // 2
    spread = _powers((half,), generator)
    query = torch.randn(length, num_heads, half, generator=generator) * spread
    key = torch.randn(1, kv.num_kv_heads, length, half, generator=generator) * spread
    value = torch.randn(1, kv.num_kv_heads, length, kv.head_dim, generator=generator)
    padding = kv.head_dim - 2 * half
    return _Probe(
        query=_pad(torch.cat([query, query], dim=-1), padding).to(kv.device, kv.dtype),
        key=_pad(torch.cat([key, -key], dim=-1), padding).to(kv.device, kv.dtype),
        value=value.to(kv.device, kv.dtype),
        scaling=2.0 ** (_FLOAT32_BITS - 2 * _SPREAD),
    )


def _value_probe(kv: KVShape, num_heads: int, length: int) -> _Probe:
    """Make keys in pairs of equal weight whose values cancel. The output is rounding alone."""
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(length, num_heads, kv.head_dim, generator=generator)
    shape = (1, kv.num_kv_heads, -(-length // _PAIRED), _PAIRED // 2, kv.head_dim)
    key = torch.randn(shape, generator=generator)
    value = torch.randn(shape, generator=generator) * _powers(shape, generator)
    return _Probe(
        query=query.to(kv.device, kv.dtype),
        key=_in_pairs(key, key)[:, :, :length].to(kv.device, kv.dtype),
        value=_in_pairs(value, -value)[:, :, :length].to(kv.device, kv.dtype),
        scaling=kv.head_dim**-0.5,
    )


def _powers(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    return torch.randint(-_SPREAD, _SPREAD + 1, tuple(shape), generator=generator).float().exp2()


def _in_pairs(first: Tensor, second: Tensor) -> Tensor:
    """Return half of each stretch of positions, then the other half; [1, K, N, D]."""
    return torch.cat([first, second], dim=3).flatten(2, 3)


def _pad(tensor: Tensor, count: int) -> Tensor:
    return torch.nn.functional.pad(tensor, (0, count))
