"""Decide whether a difference is rounding.

In fast numerics a pass of another shape may move a logit by some d. Two choices whose scores differ
by at most 2 d may swap. The change d is measured here, on the model, between rows alone and the
same rows in company, over the company's kind of cache. Only the models and the coupled choice are
called, and none of the algorithms under test.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from deployments.cli.verify.compare import Difference
from specdec_core.algorithms.padded.interface import PaddedBatch
from specdec_core.algorithms.padded.model import padded
from specdec_core.model import CachedModel, ForwardInput, ScoringModel, score
from specdec_core.request import Request
from specdec_core.sampling.gumbel import gumbel, noise_keys
from specdec_core.sampling.logit_processors import process
from specdec_core.sampling.sampler import choose
from specdec_core.sampling_params import SampleRow

NUM_COMPARED = 32
"""Number of tokens of each answer that are scored alone and in company."""
NUM_LATE = 2
"""Number of rows that join while the others are decoding, one per pass."""
MIN_SEQUENCES = 16
"""Number of answers that are scored. A larger batch scores more."""


class BatchShape(NamedTuple):
    """Conditions under which rows are scored together."""

    batch_size: int
    num_draft_tokens: int
    is_padded: bool
    """Whether the left-padded cache is used."""


class Decoded(NamedTuple):
    """A request and the reference's answer."""

    request: Request
    token_ids: Sequence[int]


class Gap(NamedTuple):
    """Closeness of the choice at a first difference, in logits, noise included."""

    top_two: float
    """Difference between the best and the second best token ID."""
    chosen: float | None
    """Difference between the reference's token ID and the other one. None if one of them had
    ended."""
    is_rounding: bool
    """Whether logits that move by the measured change can turn one choice into the other.

    This holds if the gap is at most twice the change, or if a filter's threshold is that close.
    """


def measure_gap(
    model: CachedModel, decoded: Decoded, difference: Difference, logit_change: float
) -> Gap:
    """Judge a difference by the logits of plain decoding, which are the bits that the reference
    saw."""
    request, token_ids = decoded
    passes = _plain_passes(model, decoded, difference.position + 1)
    logits = deque(passes, maxlen=1).pop()[:, : model.vocab_size]
    ids = (*request.prompt_token_ids, *token_ids[: difference.position])
    row = SampleRow(request.rules, len(ids), ids)
    scores = _scores(logits, row)
    best, second = scores.topk(2).values.tolist()
    if difference.expected is None or difference.got is None:
        return Gap(best - second, None, False)
    chosen = float(scores[difference.expected] - scores[difference.got])
    nudged = _nudged(logits, difference.expected, difference.got, logit_change)
    is_rounding = 0 <= chosen <= 2 * logit_change or any(
        choose(logits, [row], model.vocab_size) == [difference.got] for logits in nudged
    )
    return Gap(best - second, chosen, is_rounding)


def _scores(logits: Tensor, row: SampleRow) -> Tensor:
    """Return the scores that the choice compares, before filters: processed logits with noise,
    [V]."""
    processed = process(logits, [row])[0]
    params = row.rules.params
    if params.is_greedy:
        return processed
    keys = noise_keys([(params.seed, row.position)], logits.device)
    ids = torch.arange(processed.shape[0], dtype=torch.int32, device=logits.device)
    return processed + params.temperature * gumbel(keys, ids)[0]


def _nudged(logits: Tensor, expected: int, got: int, change: float) -> Iterator[Tensor]:
    """Yield the logits with the two IDs moved closer by twice the change, the maximum effect.

    With filters the ways differ, because one ID may have to enter the kept set or the other to
    leave it.
    """
    for up, down in ((2 * change, 0.0), (change, change), (0.0, 2 * change)):
        nudged = logits.clone()
        nudged[:, got] += up
        nudged[:, expected] -= down
        yield nudged


def measure_logit_change(
    model: CachedModel, decoded: Sequence[Decoded], batch_shape: BatchShape
) -> float:
    """Return the largest change of any logit between plain decoding and rounds of B rows of K + 1
    tokens."""
    largest = 0.0
    compared = decoded[: max(batch_shape.batch_size, MIN_SEQUENCES)]
    for start in range(0, len(compared), batch_shape.batch_size):
        rows = compared[start : start + batch_shape.batch_size]
        in_batch = _logits_in_batch(model, rows, batch_shape)
        for row, together in zip(rows, in_batch, strict=True):
            alone = torch.cat(list(_plain_passes(model, row, together.shape[0])))
            largest = max(largest, float((alone - together).abs().max()))
    return largest


def _plain_passes(model: CachedModel, decoded: Decoded, count: int) -> Iterator[Tensor]:
    """Yield the logits [1, V] after the prompt and after each token, which are fed alone one by
    one."""
    slot = model.allocate()
    try:
        yield score(model, [(slot, decoded.request.prompt_token_ids, 1)]).float()
        for token_id in decoded.token_ids[: count - 1]:
            yield score(model, [(slot, (token_id,), 1)]).float()
    finally:
        model.free(slot)


def _logits_in_batch(
    model: CachedModel, rows: Sequence[Decoded], batch_shape: BatchShape
) -> list[Tensor]:
    """Return the same logits, [N, V] per row, with all rows in each pass and K + 1 tokens per
    row."""
    logits: list[list[Tensor]] = [[] for _ in rows]
    with _cache(model, rows, batch_shape.is_padded) as (scoring, slots):
        for tokens in _batch_passes(rows, batch_shape):
            batch = ForwardInput.of((slots[i], *fed) for i, fed in tokens.items())
            parts = torch.split(scoring.forward(batch).logits.float(), list(batch.num_logits))
            for index, part in zip(tokens, parts, strict=True):
                logits[index].append(part)
    return [torch.cat(parts) for parts in logits]


def _batch_passes(
    rows: Sequence[Decoded], batch_shape: BatchShape
) -> Iterator[dict[int, tuple[Sequence[int], int]]]:
    """Yield for each row the tokens that it feeds, and the number of tokens with compared logits.

    Without padding, the last rows join later, so that prompts share passes with other rows'
    proposals. Padded rows must stay aligned, so they join together and end with the shortest
    answer.
    """
    shortest = min(len(row.token_ids) for row in rows)
    parts = [_parts(row, batch_shape, shortest) for row in rows]
    num_late = 0 if batch_shape.is_padded else NUM_LATE
    delays = [max(0, index - len(rows) + 1 + num_late) for index in range(len(rows))]
    for turn in range(max(map(len, parts)) + max(delays)):
        indices = {index: turn - delay for index, delay in enumerate(delays)}
        yield {i: parts[i][at] for i, at in indices.items() if 0 <= at < len(parts[i])}


def _parts(row: Decoded, batch_shape: BatchShape, shortest: int) -> list[tuple[Sequence[int], int]]:
    """Return the prompt, then K + 1 tokens at a time."""
    step = batch_shape.num_draft_tokens + 1
    answer = row.token_ids[: shortest if batch_shape.is_padded else None][: NUM_COMPARED - 1]
    chunks = [answer[start : start + step] for start in range(0, len(answer), step)]
    return [(row.request.prompt_token_ids, 1), *((chunk, len(chunk)) for chunk in chunks)]


@contextmanager
def _cache(
    model: CachedModel, rows: Sequence[Decoded], is_padded: bool
) -> Iterator[tuple[ScoringModel, Sequence[int]]]:
    """Yield a cache with empty slots for the rows."""
    if is_padded:
        own = padded(model)
        batch = own.new_batch([len(row.request.prompt_token_ids) for row in rows])
        yield PaddedBatch(own, batch), range(len(rows))
        return
    slots = [model.allocate() for _ in rows]
    try:
        yield model, slots
    finally:
        for slot in slots:
            model.free(slot)
