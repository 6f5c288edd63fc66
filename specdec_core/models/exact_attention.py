"""In which shapes attention gives a query the same bits, found at load by measuring.

Three things must not show: how many queries share its row, how many rows share the call, and how
far the keys are rounded up for a longer companion. Shape legend as in ragged_attention.py; N
positions of the probe.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from specdec_core.kv.paged import KVShape
from specdec_core.models.numerics import (
    AttentionShape,
    NotExactError,
    SizeRange,
    cheapest_run,
)
from specdec_core.models.ragged_attention import attend_rows

_MAX_QUERIES = 32
"""Queries of a row that are tried; a longer chunk becomes several rows."""
_TYPICAL_QUERIES = (1, 2, 5, 9)
_CALL_COST = 8
"""Gathering a row's keys takes about as long as so many queries."""
_KEY_ROUNDINGS = (64, 128, 256, 512)
_PLACES = (0, 31, 64, 129, 300, 511, 520, 900)
"""Positions whose queries are compared."""
_MAX_PROBE = 4096
"""Longest key length that is tried."""


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

    def attend(self, places: Sequence[int], num_queries: int, key_len: int) -> Tensor:
        """The queries at `places` and behind them, a row for each place; [R, Q, H, D]."""
        queries = [p + i for p in places for i in range(num_queries)]
        query_index = torch.tensor(queries, device=self.query.device)
        output_THD = attend_rows(
            self.query[query_index],
            self.key[:, :, :key_len].expand(len(places), -1, -1, -1).contiguous(),
            self.value[:, :, :key_len].expand(len(places), -1, -1, -1).contiguous(),
            self._mask(query_index.view(len(places), -1), key_len),
            self.scaling,
        )
        return output_THD.view(len(places), num_queries, *output_THD.shape[1:])

    def _mask(self, places_RQ: Tensor, key_len: int) -> Tensor:
        like = self.query
        hidden_RQS = torch.arange(key_len, device=like.device) > places_RQ.unsqueeze(-1)
        mask = torch.zeros(hidden_RQS.shape, dtype=like.dtype, device=like.device)
        mask.masked_fill_(hidden_RQS, float("-inf"))
        groups = like.shape[1] // self.key.shape[1]
        return mask.unsqueeze(1).repeat(1, 1, groups, 1)


@torch.inference_mode()
def find_attention_shape(kv: KVShape, num_heads: int, max_model_len: int) -> AttentionShape:
    """A range of queries per row and the finest key rounding that keep every bit.

    Raises NotExactError when not even the coarsest rounding does.
    """
    length = min(-(-max_model_len // _KEY_ROUNDINGS[-1]) * _KEY_ROUNDINGS[-1], _MAX_PROBE)
    probes = [
        _score_probe(kv, num_heads, length + _MAX_QUERIES),
        _value_probe(kv, num_heads, length + _MAX_QUERIES),
    ]
    queries = _find_query_range(probes, length)
    for rounding in _KEY_ROUNDINGS:
        shape = AttentionShape(queries=queries, key_rounding=rounding)
        if all(_is_independent(probe, shape, length) for probe in probes):
            return shape
    raise NotExactError(
        f"attention ({num_heads} heads of {kv.head_dim}, {kv.dtype}, {kv.device}) "
        f"changes bits with the keys or rows of its companions, even at lengths of {rounding}s"
    )


def _find_query_range(probes: Sequence[_Probe], length: int) -> SizeRange:
    sizes = range(1, _MAX_QUERIES + 1)
    key_len = min(length, 2 * _KEY_ROUNDINGS[-1])
    results = [[_result_in_rows_of(probe, size, key_len) for probe in probes] for size in sizes]
    agree = [
        all(_agree(a, b) for a, b in zip(shorter, longer, strict=True))
        for shorter, longer in pairwise(results)
    ]
    return cheapest_run(agree, _TYPICAL_QUERIES, _CALL_COST)


def _result_in_rows_of(probe: _Probe, size: int, key_len: int) -> Tensor | None:
    """Rows of `size` queries; None where a query's place in its row shows."""
    places = _places(key_len - size)
    output_RQHD = probe.attend(places, size, key_len)
    for shift in {size // 2, size - 1} - {0}:
        late = [place for place in places if place >= shift]
        shifted_RQHD = probe.attend([place - shift for place in late], size, key_len)
        if not torch.equal(shifted_RQHD[:, shift:], output_RQHD[-len(late) :, :-shift]):
            return None
    return output_RQHD


def _agree(shorter_RQHD: Tensor | None, longer_RQHD: Tensor | None) -> bool:
    if shorter_RQHD is None or longer_RQHD is None:
        return False
    num_rows, num_queries = longer_RQHD.shape[0], shorter_RQHD.shape[1]
    return torch.equal(shorter_RQHD[:num_rows], longer_RQHD[:, :num_queries])


def _is_independent(probe: _Probe, shape: AttentionShape, length: int) -> bool:
    """Whether rows alone and at their own key length equal rows in company at longer ones."""
    for num_queries in {shape.queries.low, min(5, shape.queries.high), shape.queries.high}:
        places = _places(length - num_queries)
        alone = torch.cat(
            [probe.attend([p], num_queries, shape.key_len(p + num_queries)) for p in places]
        )
        longest = shape.key_len(places[-1] + num_queries)
        for key_len in _key_lens(longest, shape.key_rounding, length):
            if not torch.equal(probe.attend(places, num_queries, key_len), alone):
                return False
        shortest = shape.key_len(places[0] + num_queries)
        for key_len in _key_lens(shortest, shape.key_rounding, min(length, 1024)):
            if not torch.equal(probe.attend(places[:1], num_queries, key_len), alone[:1]):
                return False
    return True


def _places(last: int) -> list[int]:
    return [place for place in _PLACES if place <= last]


def _key_lens(first: int, rounding: int, length: int) -> Iterable[int]:
    """Some lengths from `first`: the next few, then in growing steps up to `length`."""
    key_len, step = first, rounding
    while key_len <= length:
        yield key_len
        key_len += step
        step = rounding * max(1, (key_len // 4) // rounding)


def _score_probe(kv: KVShape, num_heads: int, length: int) -> _Probe:
    """Queries and keys whose products cancel: the scores are rounding alone, scaled up."""
    generator = torch.Generator().manual_seed(0)
    half = kv.head_dim // 2
    query = torch.randn(length, num_heads, half, generator=generator)
    key = torch.randn(1, kv.num_kv_heads, length, half, generator=generator)
    value = torch.randn(1, kv.num_kv_heads, length, kv.head_dim, generator=generator)
    padding = kv.head_dim - 2 * half
    return _Probe(
        query=_pad(torch.cat([query, query], dim=-1), padding).to(kv.device, kv.dtype),
        key=_pad(torch.cat([key, -key], dim=-1), padding).to(kv.device, kv.dtype),
        value=value.to(kv.device, kv.dtype),
        scaling=1e6,
    )


def _value_probe(kv: KVShape, num_heads: int, length: int) -> _Probe:
    """Keys in pairs of equal weight whose values cancel: the output is rounding alone."""
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(length, num_heads, kv.head_dim, generator=generator)
    shape = (1, kv.num_kv_heads, -(-length // 2), kv.head_dim)
    key = torch.randn(shape, generator=generator).repeat_interleave(2, dim=2)[:, :, :length]
    value = torch.randn(shape, generator=generator)
    value = torch.stack([value, -value], dim=3).flatten(2, 3)[:, :, :length]
    return _Probe(
        query=query.to(kv.device, kv.dtype),
        key=key.to(kv.device, kv.dtype),
        value=value.to(kv.device, kv.dtype),
        scaling=kv.head_dim**-0.5,
    )


def _pad(tensor: Tensor, count: int) -> Tensor:
    return torch.nn.functional.pad(tensor, (0, count))
