"""Costs of a draft step and of a target pass, measured alone on full groups of one length."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from specdec_core.model import CachedModel, score
from specdec_core.sampling_params import SamplingParams, SamplingRules
from specdec_core.worker.round import RoundRow, propose, round_row, score_and_verify

_REPEATS = 15
_CONTEXT = 192
"""Number of tokens before the pass. It is lower if the model holds fewer."""
_TOKEN = 1


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Costs in seconds, for one batch size."""

    draft_step_s: float
    """Seconds to draft one token for every row. 0 without a draft model."""
    target_pass_s: dict[int, float]
    """Seconds of a target pass by the number of drafted tokens checked. 0 tokens is plain
    decoding."""

    def ratio(self, num_draft_tokens: int) -> float:
        """Return c: the cost of a draft step relative to a target pass that checks K drafted
        tokens."""
        return self.draft_step_s / self.target_pass_s[num_draft_tokens]


def measure_costs(
    target: CachedModel,
    draft: CachedModel | None,
    batch_size: int,
    spec_tokens: Sequence[int],
    params: SamplingParams,
) -> StepCosts:
    """Return medians of repeated passes. The caches are empty afterwards."""
    longest = max(spec_tokens)
    num_rows = min(batch_size, *(_num_rows(m, longest) for m in (target, draft) if m is not None))
    rules = SamplingRules(params, _CONTEXT)
    passes = {}
    for count in (0, *spec_tokens):
        turns = _turns(num_rows, (_TOKEN,) * count, count + 1, rules)
        passes[count] = _seconds(target, turns, score_and_verify, longest)
    if draft is None:
        return StepCosts(0.0, passes)
    drafting = _seconds(draft, _turns(num_rows, (), longest, rules), propose, longest)
    return StepCosts(drafting / longest, passes)


def _turns(
    num_rows: int, proposal: tuple[int, ...], num_choices: int, rules: SamplingRules
) -> list[RoundRow]:
    return [round_row(slot, (_TOKEN,), proposal, num_choices, rules) for slot in range(num_rows)]


def _context_len(model: CachedModel, longest: int) -> int:
    return max(min(_CONTEXT, model.max_model_len - longest - 1), 0)


def _num_rows(model: CachedModel, longest: int) -> int:
    """Return the number of rows that fit into the cache together."""
    blocks = model.kv_cache_spec.blocks_for(_context_len(model, longest) + longest + 1)
    return max(model.num_free_blocks // blocks, 1)


def _seconds(
    model: CachedModel,
    turns: Sequence[RoundRow],
    run: Callable[[CachedModel, Sequence[RoundRow]], object],
    longest: int,
) -> float:
    context = _context_len(model, longest)
    slots = [model.allocate() for _ in turns]
    for (_, cached), slot in zip(turns, slots, strict=True):
        cached.slot = slot
    try:
        score(model, [(slot, (_TOKEN,) * context, 0) for slot in slots])
        return median(_timed(model, turns, run, context) for _ in range(_REPEATS))
    finally:
        for slot in slots:
            model.free(slot)


def _timed(
    model: CachedModel,
    turns: Sequence[RoundRow],
    run: Callable[[CachedModel, Sequence[RoundRow]], object],
    context: int,
) -> float:
    started = time.perf_counter()
    run(model, turns)
    seconds = time.perf_counter() - started
    for _, cached in turns:
        model.rollback(cached.slot, context)
    return seconds
