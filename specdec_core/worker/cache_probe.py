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
from specdec_core.model import ForwardInput, ForwardOutput

Forward = Callable[[ForwardInput], ForwardOutput]
"""Runs one pass whose rows have their starts."""
_MAX_ROWS = 64
"""Maximum rows of a pass of this check. Each row takes a block of the cache."""


def check_cache_use(name: str, kv: PagedKV, forward: Forward) -> None:
    """Check that every layer writes its keys and values to `kv` and reads them there.

    Every row has two tokens. The first pass must write the keys and values of the first ones. Then
    each row gets NaNs in place of one layer's values. If that layer reads them, the logits of the
    row's second token are not finite. Raises ModelNotSupportedError, which names the model `name`.
    """
    num_layers = len(kv.all_pools)
    num_rows = min(num_layers, _MAX_ROWS, kv.num_free_blocks)
    slots = [kv.allocate() for _ in range(num_rows)]
    kv.extend(dict.fromkeys(slots, 2))
    rows = [kv.block_table(slot)[0] * kv.block_size for slot in slots]
    first_tokens = [pool[rows[0]] for pools in kv.all_pools for pool in pools]

    def feed(start: int, num_rows: int) -> Tensor:
        rows = [(slot, (0,), 1) for slot in slots[:num_rows]]
        return forward(ForwardInput.of(rows, starts=[start] * num_rows)).logits

    try:
        _fill(first_tokens, math.nan)
        feed(0, num_rows)
        is_unwritten = torch.stack([row.isnan().all() for row in first_tokens])
        _check(name, "write keys and values to", is_unwritten.view(-1, 2).any(1))
        are_unread = []
        for first in range(0, num_layers, num_rows):
            layers = kv.all_pools[first : first + num_rows]
            values = [pool[row] for (_, pool), row in zip(layers, rows, strict=False)]
            _fill(values, math.nan)
            are_unread.append(feed(1, len(layers)).isfinite().all(1))
            _fill(values, 0.0)
        _check(name, "read keys and values from", torch.cat(are_unread))
    finally:
        _fill(first_tokens, 0.0)
        for slot in slots:
            kv.free(slot)


def _fill(rows: Sequence[Tensor], number: float) -> None:
    for row in rows:
        row.fill_(number)


def _check(name: str, use: str, is_unused_L: Tensor) -> None:
    """Raise ModelNotSupportedError if any layer does not use the cache."""
    num_unused, num_layers = sum(is_unused_L.tolist()), len(is_unused_L)
    if num_unused:
        raise ModelNotSupportedError(
            f"{name}: only {num_layers - num_unused} of {num_layers} layers {use} the cache"
        )
