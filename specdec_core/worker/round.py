"""The two halves of a speculative round, shared by every algorithm on the in-place cache.

The cached-prefix rule (algorithm.md section 4) is an invariant. Before a round, each model caches a
prefix of a sequence's N committed tokens, at most N - 1 of them. The model's next round feeds all
tokens after the prefix. So prefill, an ordinary round, a rejection, a full acceptance and recovery
on another replica are one code path: catch up, score, roll back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import compress, islice
from typing import NamedTuple

import torch
from torch import Tensor

from specdec_core.config import GPU_DRAFT_TOKENS
from specdec_core.host_copies import on_device
from specdec_core.logprobs import TokenLogprobs
from specdec_core.model import DraftsInOneGo, ForwardInput, ScoringModel
from specdec_core.sampling.sampler import NO_CHOICE, choose
from specdec_core.sampling.token_logprobs import PromptShare, measure_logprobs, take_prompts
from specdec_core.sampling_params import SampleRow, SamplingRules
from specdec_core.worker.verification import Verdict, verify

MAX_FED_AT_ONCE = GPU_DRAFT_TOKENS + 3
"""Maximum tokens of a draft's row before its first choice. A full acceptance leaves two; if all K
tokens of prompt lookup were accepted since, K + 1 more. A longer row is fed as a prefill first."""


class RoundInput(NamedTuple):
    """One sequence's part of a pass. N = cached_len(slot) + len(new_ids) once it is caught up."""

    slot: int
    new_ids: Sequence[int]
    """Committed tokens after the cached prefix. The last of them is the pending token."""
    proposal: Sequence[int]
    """Target: drafted tokens to check."""
    num_choices: int
    """Number of tokens to sample: K + 1 for a target, K for a draft, 0 to catch up only."""
    rules: SamplingRules
    history: tuple[int, ...] = ()
    """All N committed tokens, `new_ids` included. May be empty for rules that need no history."""
    num_scored: int = 0
    """For a target, the number of tokens of new_ids[1:], from the first on, whose log-probabilities
    are reported."""


def propose(
    draft: ScoringModel, rows: Sequence[RoundInput], min_confidence: float = 0.0
) -> list[tuple[int, ...]]:
    """Draft num_choices tokens per sequence by the target's own rule: same seed, same positions.

    A proposal ends before a token that the draft gives a probability below `min_confidence`, or
    where nothing can be chosen. Afterwards a slot caches its N committed tokens and all drafted
    ones, except the last of num_choices.
    """
    # The attribute is read by name, because isinstance with a protocol takes 37 us.
    if getattr(draft, "drafts_in_one_go", False) and not _need_host(rows):
        return _propose_in_one_go(draft, rows, min_confidence)
    return _propose_by_token(draft, rows, min_confidence)


def _need_host(rows: Sequence[RoundInput]) -> bool:
    """Return True if any choice depends on more than logits, noise and filters."""
    return any(row.num_choices > 0 and row.rules.logit_fields for row in rows)


def _propose_in_one_go(
    draft: ScoringModel, rows: Sequence[RoundInput], min_confidence: float
) -> list[tuple[int, ...]]:
    """Feed long rows first, then draft all tokens in one call to the device."""
    assert isinstance(draft, DraftsInOneGo)
    rows = _catch_up(draft, rows)
    choosing = [row for row in rows if row.num_choices > 0]
    if not choosing:
        return [()] * len(rows)
    batch = ForwardInput.of((row.slot, row.new_ids, 1) for row in choosing)
    choices = [(row.num_choices, row.rules.params) for row in choosing]
    drafted = draft.draft(batch, choices, min_confidence)
    if drafted is None:
        drafted = _propose_by_token(draft, choosing, min_confidence)
    proposals = iter(drafted)
    return [next(proposals) if row.num_choices > 0 else () for row in rows]


def _catch_up(draft: ScoringModel, rows: Sequence[RoundInput]) -> list[RoundInput]:
    """Feed all tokens of a row that samples nothing, and all but the last token of a long row.
    Return the rows with the tokens that are left to feed."""
    caught_up = []
    long_rows = []
    for row in rows:
        num_left = min(row.num_choices, 1)
        if num_left == 0 or len(row.new_ids) > MAX_FED_AT_ONCE:
            num_fed = len(row.new_ids) - num_left
            long_rows.append((row.slot, row.new_ids[:num_fed], 0))
            row = row._replace(new_ids=row.new_ids[num_fed:])
        caught_up.append(row)
    if long_rows:
        draft.forward(ForwardInput.of(long_rows))
    return caught_up


def _propose_by_token(
    draft: ScoringModel, rows: Sequence[RoundInput], min_confidence: float
) -> list[tuple[int, ...]]:
    proposals: list[list[int]] = [[] for _ in rows]
    batch = ForwardInput.of((row.slot, row.new_ids, min(row.num_choices, 1)) for row in rows)
    live = [index for index, row in enumerate(rows) if row.num_choices > 0]
    while batch.slots:
        logits = draft.forward(batch).logits
        samples = [_next_sample(draft, rows[i], proposals[i]) for i in live]
        chosen = choose(logits, samples, draft.vocab_size) if samples else []
        kept = _confident(logits, chosen, draft.vocab_size, min_confidence)
        live = [index for index, is_kept in zip(live, kept, strict=True) if is_kept]
        for index, token in zip(live, compress(chosen, kept), strict=True):
            proposals[index].append(token)
        live = [i for i in live if len(proposals[i]) < rows[i].num_choices]
        batch = ForwardInput.of((rows[i].slot, proposals[i][-1:], 1) for i in live)
    return [tuple(proposal) for proposal in proposals]


def _confident(
    logits: Tensor, tokens: Sequence[int], vocab_size: int, min_confidence: float
) -> list[bool]:
    """Return True for each token whose probability at temperature 1 is at least `min_confidence`.
    NO_CHOICE is never kept."""
    if min_confidence == 0.0 or not tokens:
        return [token != NO_CHOICE for token in tokens]
    z_NV = logits[:, :vocab_size].float()
    ids_N1 = on_device(tokens, torch.long, z_NV.device).unsqueeze(1)
    z_N1 = z_NV.gather(1, ids_N1.clamp(min=0))
    confidence_N1 = (z_N1 - z_NV.logsumexp(dim=-1, keepdim=True)).exp()
    is_kept_N1 = (confidence_N1 >= min_confidence) & (ids_N1 != NO_CHOICE)
    return list(is_kept_N1.flatten().tolist())


def _next_sample(draft: ScoringModel, row: RoundInput, proposal: list[int]) -> SampleRow:
    return SampleRow(row.rules, draft.cached_len(row.slot), _history(row, proposal))


def _history(row: RoundInput, proposal: Sequence[int]) -> tuple[int, ...]:
    """Return the IDs as if the whole proposal were accepted, or () for rules that ignore them."""
    return (*row.history, *proposal) if row.rules.needs_history else ()


def score_and_verify(target: ScoringModel, rows: Sequence[RoundInput]) -> list[Verdict]:
    """Catch up, score every proposal in one pass, commit the target's choices, roll back the rest.

    Afterwards a slot caches N' - 1 of the N' committed tokens. A verdict without tokens belongs to
    a row that only catches up. (NO_CHOICE,) belongs to a row where nothing could be chosen.
    """
    shares = [_prompt_share(row) for row in rows]
    logits = target.forward(_target_input(rows, shares)).logits
    prompts, logits = take_prompts(logits, shares, target.vocab_size)
    samples: list[SampleRow] = []
    for row in rows:
        samples += _samples(target, row)
    choices = choose(logits, samples, target.vocab_size) if samples else []
    verdicts, end = [], 0
    for row in rows:
        start, end = end, end + row.num_choices
        verdicts.append(_verified(target, row, choices[start:end]))
    if any(row.num_scored or row.rules.params.num_logprobs is not None for row in rows):
        return _with_logprobs(target, rows, samples, verdicts, logits, prompts)
    return verdicts


def _target_input(rows: Sequence[RoundInput], shares: Sequence[PromptShare]) -> ForwardInput:
    """Return the pass that feeds every row its new tokens and its proposal."""
    token_ids: list[int] = []
    for row in rows:
        token_ids += row.new_ids
        token_ids += row.proposal
    return ForwardInput(
        [row.slot for row in rows],
        [len(row.new_ids) + len(row.proposal) for row in rows],
        [share.num_rows + share.num_choices for share in shares],
        token_ids,
    )


def _prompt_share(row: RoundInput) -> PromptShare:
    """Return the prompt logits that the row needs. A row that scores its prompt takes the logits of
    all fed tokens, and those of the prompt come first."""
    if not row.num_scored:
        return _no_prompt(row.num_choices)
    return PromptShare(
        num_rows=len(row.new_ids) + len(row.proposal) - row.num_choices,
        tokens=row.new_ids[1 : 1 + row.num_scored],
        num_top=row.rules.params.num_prompt_logprobs or 0,
        num_choices=row.num_choices,
    )


@cache
def _no_prompt(num_choices: int) -> PromptShare:
    return PromptShare(0, (), 0, num_choices)


def _samples(target: ScoringModel, row: RoundInput) -> list[SampleRow]:
    """Return the sample rows. Choice j after N committed tokens has the absolute position N + j."""
    num_committed = target.cached_len(row.slot) - len(row.proposal)
    if row.num_choices == 1 and not row.history:
        return [SampleRow(row.rules, num_committed)]
    history = _history(row, row.proposal)
    return [SampleRow(row.rules, num_committed + j, history) for j in range(row.num_choices)]


def _verified(target: ScoringModel, row: RoundInput, choices: list[int]) -> Verdict:
    """Verify the proposal up to the first position where nothing can be chosen. The tokens before
    it count, as without speculation, and the next round reaches that position again."""
    if not (choices and row.proposal):
        return Verdict(0, tuple(choices))
    if NO_CHOICE in choices:
        choices = choices[: max(choices.index(NO_CHOICE), 1)]
    verdict = verify(row.proposal[: len(choices) - 1], choices)
    num_rejected = len(row.proposal) - verdict.num_accepted
    target.rollback(row.slot, target.cached_len(row.slot) - num_rejected)
    return verdict


def _with_logprobs(
    target: ScoringModel,
    rows: Sequence[RoundInput],
    samples: Sequence[SampleRow],
    verdicts: Sequence[Verdict],
    logits: Tensor,
    prompts: Sequence[tuple[TokenLogprobs, ...]],
) -> list[Verdict]:
    """Return the verdicts with log-probabilities, measured only for committed tokens. Those of
    prompts were taken before."""
    tokens: list[int] = []
    for row, verdict in zip(rows, verdicts, strict=True):
        num_unused = row.num_choices - len(verdict.tokens)
        tokens += (*verdict.tokens, *[NO_CHOICE] * num_unused)
    measured = iter(measure_logprobs(logits, samples, tokens, target.vocab_size))
    shares = [tuple(islice(measured, row.num_choices)) for row in rows]
    return [
        verdict._replace(
            logprobs=tuple(entry for entry in share if entry is not None), prompt_logprobs=prompt
        )
        for verdict, share, prompt in zip(verdicts, shares, prompts, strict=True)
    ]
