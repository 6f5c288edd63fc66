"""Changes logits before the filters by bans, bias and penalties, in vLLM's order and meaning.

Draft and target each apply a request's processors to their own logits. Row j of a proposal sees the
IDs before its own position, including drafted tokens 1..j. Decoding without speculation would see
the same IDs.

A new processor is a function here and an entry of LOGIT_PROCESSORS. Nothing else has to know it:
the filters, the kernels and the device sampler choose from the logits that it leaves. It gets the
logits before the temperature, and drops an ID by a logit of -inf. Add probabilities as integers:
the order of a sum of floats may depend on the number of rows.

Shape legend: N rows, V vocabulary; G rows of one sequence, U distinct IDs of its history.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from specdec_core.host_copies import on_device, to_device
from specdec_core.sampling.cpu import choice_kernels_for
from specdec_core.sampling_params import SampleRow, SamplingRules


def process(z_NV: Tensor, rows: Sequence[SampleRow]) -> Tensor:
    """Return a float32 copy of the logits, as the rules of the rows change them."""
    z_NV = z_NV.to(torch.float32, copy=True)
    for group in _groups(rows):
        active = group.rules.logit_fields
        if not active:
            continue
        has_history = len(group.history) >= max(group.positions)
        assert has_history or not group.rules.needs_history, "these rules look at the ids before"
        z_GV = z_NV[group.first : group.first + len(group.positions)]
        for processor in LOGIT_PROCESSORS:
            if not active.isdisjoint(processor.fields):
                processor.apply(z_GV, group)
    return z_NV


def bans_every_id(rules: SamplingRules, history: Sequence[int], vocab_size: int) -> bool:
    """Return True if the rules allow no ID after `history`, for any logits."""
    row = SampleRow(rules, len(history), history)
    return not bool(process(torch.zeros(1, vocab_size), [row]).isfinite().any())


class SequenceRows(NamedTuple):
    """Consecutive rows of one sequence."""

    rules: SamplingRules
    history: Sequence[int]
    first: int
    """Row of the first position."""
    positions: list[int]


class LogitProcessor(NamedTuple):
    """A change of logits. It is applied if one of its parameters differs from its default."""

    fields: tuple[str, ...]
    """Parameters whose declared effect is LOGITS or HISTORY."""
    apply: Callable[[Tensor, SequenceRows], None]
    """Changes the logits of one sequence's rows, float32 [G, V], in place. The logits of a row may
    depend on that row only, or the output would depend on the batch and on K."""


def _groups(rows: Sequence[SampleRow]) -> Iterator[SequenceRows]:
    first = 0
    for _, members in groupby(rows, key=lambda row: (id(row.rules), id(row.history))):
        neighbours = list(members)
        positions = [row.position for row in neighbours]
        yield SequenceRows(neighbours[0].rules, neighbours[0].history, first, positions)
        first += len(neighbours)


def _keep_allowed(z_GV: Tensor, group: SequenceRows) -> None:
    allowed = group.rules.params.allowed_token_ids
    ids_U = _in_vocabulary(allowed, z_GV)
    kept_GU = z_GV[:, ids_U]
    z_GV.fill_(-math.inf)
    z_GV[:, ids_U] = kept_GU


def _keep_grammatical(z_GV: Tensor, group: SequenceRows) -> None:
    """Ban the IDs that the grammar forbids. Rows after a drafted ID that the grammar forbids are
    left as they are. The target never chooses that ID, so no row after it counts."""
    grammar, prompt_len = group.rules.grammar, group.rules.prompt_len
    assert grammar is not None, "rules are compiled before anything is chosen by them"
    for row, position in enumerate(group.positions):
        allowed = grammar.allowed(group.history[prompt_len:position])
        if allowed is not None:
            size = min(len(allowed), z_GV.shape[1])
            # Copied, because the memory of a tensor must be writable.
            allowed_U = torch.frombuffer(bytearray(allowed[:size]), dtype=torch.uint8)
            z_GV[row, :size].masked_fill_(to_device(allowed_U == 0, z_GV.device), -math.inf)
            z_GV[row, size:] = -math.inf


def _ban(z_GV: Tensor, bans: Sequence[tuple[int, int]]) -> None:
    """Set the logits of (row of the group, ID) pairs to -inf. A plain number stored at an index
    would be copied to a GPU, and the host would wait."""
    inside = [(row, token_id) for row, token_id in bans if token_id < z_GV.shape[1]]
    if inside:
        rows_M, ids_M = on_device(inside, torch.long, z_GV.device).unbind(1)
        z_GV.index_put_((rows_M, ids_M), z_GV.new_full((), -math.inf))


def _ban_bad_words(z_GV: Tensor, group: SequenceRows) -> None:
    """Ban the last ID of every word whose other IDs have just been emitted."""
    bans = []
    for row, position in enumerate(group.positions):
        for *beginning, end in group.rules.params.bad_words:
            start = position - len(beginning)
            is_emitted = start >= group.rules.prompt_len or not beginning
            if is_emitted and list(group.history[start:position]) == beginning:
                bans.append((row, end))
    _ban(z_GV, bans)


def _ban_early_ends(z_GV: Tensor, group: SequenceRows) -> None:
    rules = group.rules
    early = [
        row
        for row, position in enumerate(group.positions)
        if position - rules.prompt_len < rules.params.min_tokens
    ]
    _ban(z_GV, [(row, token_id) for row in early for token_id in rules.stop_ids])


def _add_bias(z_GV: Tensor, group: SequenceRows) -> None:
    logit_bias = group.rules.params.logit_bias
    inside = [(token_id, bias) for token_id, bias in logit_bias if token_id < z_GV.shape[1]]
    ids_U = on_device([token_id for token_id, _ in inside], torch.long, z_GV.device)
    bias_U = on_device([bias for _, bias in inside], z_GV.dtype, z_GV.device)
    z_GV[:, ids_U] += bias_U


def _penalise(z_GV: Tensor, group: SequenceRows) -> None:
    """Penalise repetition over prompt and output, then frequency and presence over the output
    alone."""
    kernels = choice_kernels_for(z_GV)
    if kernels is not None:
        kernels.penalise(z_GV, group.rules, group.history, group.positions)
        return
    params = group.rules.params
    ids_U, count_GU, is_in_prompt_U = _count(group, z_GV.device)
    z_GU = z_GV[:, ids_U]
    is_output_GU = count_GU > 0
    repeated_GU = torch.where(
        z_GU > 0, z_GU / params.repetition_penalty, z_GU * params.repetition_penalty
    )
    z_GU = torch.where(is_output_GU | is_in_prompt_U, repeated_GU, z_GU)
    z_GU -= count_GU.to(z_GU.dtype) * params.frequency_penalty
    z_GU -= is_output_GU.to(z_GU.dtype) * params.presence_penalty
    z_GV[:, ids_U] = z_GU


def _count(group: SequenceRows, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return the history's distinct IDs, their counts in each row's output, and which the prompt
    has.

    The IDs are counted on the CPU, where they are stored.
    """
    prompt_len = group.rules.prompt_len
    history_N = torch.tensor(group.history[: max(group.positions)], dtype=torch.long)
    ids_U, index_N = torch.unique(history_N, return_inverse=True)
    count_GU = torch.stack(
        [
            index_N[prompt_len:position].bincount(minlength=len(ids_U))
            for position in group.positions
        ]
    )
    is_in_prompt_U = index_N[:prompt_len].bincount(minlength=len(ids_U)) > 0
    return (
        to_device(ids_U, device),
        to_device(count_GU, device),
        to_device(is_in_prompt_U, device),
    )


def _in_vocabulary(token_ids: Sequence[int], z_GV: Tensor) -> Tensor:
    inside = [token_id for token_id in token_ids if token_id < z_GV.shape[1]]
    return on_device(inside, torch.long, z_GV.device)


LOGIT_PROCESSORS = (
    LogitProcessor(("allowed_token_ids",), _keep_allowed),
    LogitProcessor(("grammar",), _keep_grammatical),
    LogitProcessor(("bad_words",), _ban_bad_words),
    LogitProcessor(("min_tokens",), _ban_early_ends),
    LogitProcessor(("logit_bias",), _add_bias),
    LogitProcessor(("repetition_penalty", "frequency_penalty", "presence_penalty"), _penalise),
)
"""All processors, in the order in which they are applied."""
