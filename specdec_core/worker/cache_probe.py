"""Check at load that the passes of a model keep their keys and values in our cache.

The check looks at the cache and at the logits, so it holds for whatever computes the pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from specdec_core.errors import ModelNotSupportedError
from specdec_core.kv_cache.paged import PagedKV
from specdec_core.layers.attention.metadata import Piece

Forward = Callable[[Sequence[Piece]], Tensor]


def check_cache_use(name: str, kv: PagedKV, forward: Forward) -> None:
    """Run two tokens through `forward` and check that every layer uses `kv`.

    Raises ModelNotSupportedError, which names the model `name`, unless every layer writes its keys
    and values to `kv` and reads them there.
    """
    slot = kv.allocate()
    kv.extend({slot: 2})
    first_place = kv.block_table(slot)[0] * kv.block_size
    keys, values = (
        [pool[first_place] for pool in kind] for kind in zip(*kv.all_pools, strict=True)
    )
    try:
        _mark((*keys, *values))
        forward([Piece(slot, 0, (0,), 1)])
        num_unwritten = _num_marked(keys, values)
        if num_unwritten:
            raise ModelNotSupportedError(
                f"{name}: {len(keys) - num_unwritten} of {len(keys)} layers write keys and values "
                "to the cache"
            )
        _mark(values)
        if forward([Piece(slot, 1, (0,), 1)]).isfinite().all().tolist():
            raise ModelNotSupportedError(f"{name}: no layer reads keys and values from the cache")
    finally:
        for row in (*keys, *values):
            row.zero_()
        kv.free(slot)


def _mark(rows: Sequence[Tensor]) -> None:
    for row in rows:
        row.fill_(math.nan)


def _num_marked(keys: Sequence[Tensor], values: Sequence[Tensor]) -> int:
    """Return the number of layers whose key or value is still marked."""
    marked = [
        torch.stack(pair).isnan().flatten(1).all(1).any() for pair in zip(keys, values, strict=True)
    ]
    found: list[bool] = torch.stack(marked).tolist()
    return sum(found)
