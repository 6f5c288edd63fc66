"""The two halves of a speculative round, shared by every algorithm on the in-place cache.

Invariant (the cached-prefix rule, algorithm.md section 4): before a round, each model caches a
prefix of at most N - 1 of a sequence's N committed tokens. The model's next round feeds all tokens
after the prefix. So prefill, an ordinary round, a rejection, a full acceptance and recovery on
another replica are one code path: catch up, score, roll back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import compress, islice
from typing import NamedTuple

import torch
from torch import Tensor

from specdec_core.choice_rules import SampleRow, SamplingRules
from specdec_core.config import GPU_DRAFT_TOKENS
from specdec_core.host_copies import on_device
from specdec_core.logprobs import TokenLogprobs
from specdec_core.model import DraftsInOneGo, ForwardInput, ScoringModel
from specdec_core.sampling.sampler import NO_CHOICE, choose
from specdec_core.sampling.token_logprobs import PromptShare, measure_logprobs, take_prompts
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
    draft: ScoringModel, turns: Sequence[RoundInput], min_confidence: float = 0.0
) -> list[tuple[int, ...]]:
    """Draft num_choices tokens per sequence by the target's own rule: same seed, same positions.

    A proposal ends before a token that the draft gives a probability below `min_confidence`, or
    where nothing can be chosen. Afterwards a slot caches its N committed tokens and all drafted
    ones, except the last of num_choices.
    """
    # The attribute is read by name, because isinstance with a protocol takes 37 us.
    if getattr(draft, "drafts_in_one_go", False) and not _need_host(turns):
        return _propose_in_one_go(draft, turns, min_confidence)
    return _propose_by_token(draft, turns, min_confidence)


def _need_host(turns: Sequence[RoundInput]) -> bool:
    """Return True if any choice depends on more than logits, noise and filters."""
    return any(turn.num_choices > 0 and turn.rules.logit_fields for turn in turns)


def _propose_in_one_go(
    draft: ScoringModel, turns: Sequence[RoundInput], min_confidence: float
) -> list[tuple[int, ...]]:
    """Feed long rows first, then draft all tokens in one call to the device."""
    assert isinstance(draft, DraftsInOneGo)
    turns = _catch_up(draft, turns)
    choosing = [turn for turn in turns if turn.num_choices > 0]
    if not choosing:
        return [()] * len(turns)
    batch = ForwardInput.of((turn.slot, turn.new_ids, 1) for turn in choosing)
    choices = [(turn.num_choices, turn.rules.params) for turn in choosing]
    drafted = draft.draft(batch, choices, min_confidence)
    if drafted is None:
        drafted = _propose_by_token(draft, choosing, min_confidence)
    proposals = iter(drafted)
    return [next(proposals) if turn.num_choices > 0 else () for turn in turns]


def _catch_up(draft: ScoringModel, turns: Sequence[RoundInput]) -> list[RoundInput]:
    """Feed all tokens of a row that samples nothing, and all but the last token of a long row.
    Return the rows with the tokens that are left to feed."""
    caught_up = []
    long_rows = []
    for turn in turns:
        num_left = min(turn.num_choices, 1)
        if num_left == 0 or len(turn.new_ids) > MAX_FED_AT_ONCE:
            num_fed = len(turn.new_ids) - num_left
            long_rows.append((turn.slot, turn.new_ids[:num_fed], 0))
            turn = turn._replace(new_ids=turn.new_ids[num_fed:])
        caught_up.append(turn)
    if long_rows:
        draft.forward(ForwardInput.of(long_rows))
    return caught_up


def _propose_by_token(
    draft: ScoringModel, turns: Sequence[RoundInput], min_confidence: float
) -> list[tuple[int, ...]]:
    proposals: list[list[int]] = [[] for _ in turns]
    batch = ForwardInput.of((t.slot, t.new_ids, min(t.num_choices, 1)) for t in turns)
    live = [index for index, turn in enumerate(turns) if turn.num_choices > 0]
    while batch.slots:
        logits = draft.forward(batch).logits
        rows = [_next_row(draft, turns[i], proposals[i]) for i in live]
        chosen = choose(logits, rows, draft.vocab_size) if rows else []
        kept = _confident(logits, chosen, draft.vocab_size, min_confidence)
        live = [index for index, is_kept in zip(live, kept, strict=True) if is_kept]
        for index, token in zip(live, compress(chosen, kept), strict=True):
            proposals[index].append(token)
        live = [i for i in live if len(proposals[i]) < turns[i].num_choices]
        batch = ForwardInput.of((turns[i].slot, proposals[i][-1:], 1) for i in live)
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


def _next_row(draft: ScoringModel, turn: RoundInput, proposal: list[int]) -> SampleRow:
    return SampleRow(turn.rules, draft.cached_len(turn.slot), _history(turn, proposal))


def _history(turn: RoundInput, proposal: Sequence[int]) -> tuple[int, ...]:
    """Return the IDs as if the whole proposal were accepted, or () for rules that ignore them."""
    return (*turn.history, *proposal) if turn.rules.needs_history else ()


def score_and_verify(target: ScoringModel, turns: Sequence[RoundInput]) -> list[Verdict]:
    """Catch up, score every proposal in one pass, commit the target's choices, roll back the rest.

    Afterwards a slot caches N' - 1 of the N' committed tokens. A verdict without tokens belongs to
    a row that only catches up. (NO_CHOICE,) belongs to a row where nothing could be chosen.
    """
    shares = [_prompt_share(turn) for turn in turns]
    logits = target.forward(_target_input(turns, shares)).logits
    prompts, logits = take_prompts(logits, shares, target.vocab_size)
    rows: list[SampleRow] = []
    for turn in turns:
        rows += _choice_rows(target, turn)
    choices = choose(logits, rows, target.vocab_size) if rows else []
    verdicts = [
        _settle(target, turn, own) for turn, own in zip(turns, _split(choices, turns), strict=True)
    ]
    if not any(map(_reports, turns)):
        return verdicts
    return _with_logprobs(target, turns, rows, verdicts, logits, prompts)


def _split(choices: list[int], turns: Sequence[RoundInput]) -> Iterator[list[int]]:
    """Yield the choices of each row."""
    end = 0
    for turn in turns:
        start, end = end, end + turn.num_choices
        yield choices[start:end]


def _target_input(turns: Sequence[RoundInput], shares: Sequence[PromptShare]) -> ForwardInput:
    """Return the pass that feeds every row its new tokens and its proposal."""
    token_ids: list[int] = []
    for turn in turns:
        token_ids += turn.new_ids
        token_ids += turn.proposal
    return ForwardInput(
        [turn.slot for turn in turns],
        [len(turn.new_ids) + len(turn.proposal) for turn in turns],
        [share.num_rows + share.num_choices for share in shares],
        token_ids,
    )


def _reports(turn: RoundInput) -> bool:
    """Return True if the request asks for log-probabilities."""
    return turn.num_scored > 0 or turn.rules.params.num_logprobs is not None


def _prompt_share(turn: RoundInput) -> PromptShare:
    """Return the prompt logits that the row needs. A row that scores its prompt takes the logits of
    all fed tokens, and those of the prompt come first."""
    if not turn.num_scored:
        return _no_prompt(turn.num_choices)
    return PromptShare(
        num_rows=len(turn.new_ids) + len(turn.proposal) - turn.num_choices,
        tokens=turn.new_ids[1 : 1 + turn.num_scored],
        num_top=turn.rules.params.num_prompt_logprobs or 0,
        num_choices=turn.num_choices,
    )


@cache
def _no_prompt(num_choices: int) -> PromptShare:
    return PromptShare(0, (), 0, num_choices)


def _choice_rows(target: ScoringModel, turn: RoundInput) -> list[SampleRow]:
    """Return the sample rows. Choice j after N committed tokens has the absolute position N + j."""
    num_committed = target.cached_len(turn.slot) - len(turn.proposal)
    if turn.num_choices == 1 and not turn.history:
        return [SampleRow(turn.rules, num_committed)]
    history = _history(turn, turn.proposal)
    return [SampleRow(turn.rules, num_committed + j, history) for j in range(turn.num_choices)]


def _settle(target: ScoringModel, turn: RoundInput, choices: list[int]) -> Verdict:
    """Verify the proposal up to the first position where nothing can be chosen. The tokens before
    it count, as without speculation, and the next round reaches that position again."""
    if not (choices and turn.proposal):
        return Verdict(0, tuple(choices))
    if NO_CHOICE in choices:
        choices = choices[: max(choices.index(NO_CHOICE), 1)]
    verdict = verify(turn.proposal[: len(choices) - 1], choices)
    num_rejected = len(turn.proposal) - verdict.num_accepted
    target.rollback(turn.slot, target.cached_len(turn.slot) - num_rejected)
    return verdict


def _with_logprobs(
    target: ScoringModel,
    turns: Sequence[RoundInput],
    rows: Sequence[SampleRow],
    verdicts: Sequence[Verdict],
    logits: Tensor,
    prompts: Sequence[tuple[TokenLogprobs, ...]],
) -> list[Verdict]:
    """Return the verdicts with log-probabilities, measured only for committed tokens. Those of
    prompts were taken before."""
    tokens: list[int] = []
    for turn, verdict in zip(turns, verdicts, strict=True):
        num_unused = turn.num_choices - len(verdict.tokens)
        tokens += (*verdict.tokens, *[NO_CHOICE] * num_unused)
    measured = iter(measure_logprobs(logits, rows, tokens, target.vocab_size))
    shares = [tuple(islice(measured, turn.num_choices)) for turn in turns]
    return [
        verdict._replace(
            logprobs=tuple(entry for entry in share if entry is not None), prompt_logprobs=prompt
        )
        for verdict, share, prompt in zip(verdicts, shares, prompts, strict=True)
    ]
