"""The two halves of a speculative round, shared by every algorithm on the in-place cache.

The cached-prefix rule (algorithm.md section 4) is an invariant. Before a round, each model caches a
prefix of a sequence's N committed tokens, at most N - 1 of them. The model's next round feeds all
tokens after the prefix. So prefill, an ordinary round, a rejection, a full acceptance and recovery
on another replica are one code path: catch up, score, roll back.

Under coupled sampling a choice does not depend on the draft. At any temperature, a drafted token is
accepted if and only if it equals the target's choice. The next token is the choice at the first
mismatch, or the bonus token when all K were accepted.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress, islice

import torch
from torch import Tensor

from specdec_core.config import GPU_DRAFT_TOKENS
from specdec_core.host_copies import on_device
from specdec_core.logprobs import TokenLogprobs
from specdec_core.messages import EMPTY_HASH, OK, LeaseRow, RowResult, hashes_behind
from specdec_core.model import DraftsInOneGo, ForwardInput, ScoringModel
from specdec_core.sampling.sampler import NO_CHOICE, choose
from specdec_core.sampling.token_logprobs import PromptShare, measure_logprobs, take_prompts
from specdec_core.sampling_params import SampleRow, SamplingRules

MAX_FED_AT_ONCE = GPU_DRAFT_TOKENS + 3
"""Maximum tokens of a draft's row before its first choice. A full acceptance leaves two; if all K
tokens of prompt lookup were accepted since, K + 1 more. A longer row is fed as a prefill first."""


@dataclass(eq=False, slots=True)
class CachedSequence:
    """A slot, and the IDs that its KV came from."""

    slot: int
    rules: SamplingRules
    ids: array[int]
    prefix_hashes: array[int]
    """prefix_hashes[i] is the hash of ids[:i]."""
    num_matched: int = 0
    """Prompt tokens of the last row that were found in the prefix cache."""

    def truncate(self, length: int) -> None:
        """Forget the IDs after the first `length`."""
        del self.ids[length:]
        del self.prefix_hashes[length + 1 :]

    def extend(self, token_ids: Sequence[int]) -> None:
        """Add IDs whose KV the slot has cached since."""
        self.ids.extend(token_ids)
        self.prefix_hashes.extend(hashes_behind(self.prefix_hashes[-1], token_ids))


RoundRow = tuple[LeaseRow, CachedSequence]
"""One sequence's part of a pass: a row whose `new_ids` follow directly the IDs of the slot."""


def round_row(
    slot: int,
    new_ids: Sequence[int],
    proposal: Sequence[int],
    num_choices: int,
    rules: SamplingRules,
    *,
    ids: Sequence[int] = (),
    num_scored: int = 0,
) -> RoundRow:
    """Return a row that no lease has. The slot caches `ids`, which rules without history do not
    need."""
    cached = CachedSequence(slot, rules, array("i", ids), array("Q"))
    fed = tuple(new_ids), tuple(proposal)
    return LeaseRow(slot, len(ids), EMPTY_HASH, *fed, num_choices, num_scored), cached


def propose(
    draft: ScoringModel, rows: Sequence[RoundRow], min_confidence: float = 0.0
) -> list[tuple[int, ...]]:
    """Draft num_choices tokens per sequence by the target's own rule: same seed, same positions.

    A proposal ends before a token that the draft gives a probability below `min_confidence`, or
    where nothing can be chosen. Afterwards a slot caches its N committed tokens and all drafted
    ones, except the last of num_choices.
    """
    # The attribute is read by name, because isinstance with a protocol takes 37 us.
    may_draft = getattr(draft, "drafts_in_one_go", False)
    # The host is needed if any choice depends on more than logits, noise and filters.
    if may_draft and not any(row.num_choices > 0 and c.rules.logit_fields for row, c in rows):
        return _propose_in_one_go(draft, rows, min_confidence)
    return _propose_by_token(draft, rows, min_confidence)


def _propose_in_one_go(
    draft: ScoringModel, rows: Sequence[RoundRow], min_confidence: float
) -> list[tuple[int, ...]]:
    """Feed long rows first, then draft all tokens in one call to the device."""
    assert isinstance(draft, DraftsInOneGo)
    rows = _catch_up(draft, rows)
    choosing = [pair for pair in rows if pair[0].num_choices > 0]
    if not choosing:
        return [()] * len(rows)
    batch = ForwardInput.of((cached.slot, row.new_ids, 1) for row, cached in choosing)
    choices = [(row.num_choices, cached.rules.params) for row, cached in choosing]
    drafted = draft.draft(batch, choices, min_confidence)
    if drafted is None:
        drafted = _propose_by_token(draft, choosing, min_confidence)
    proposals = iter(drafted)
    return [next(proposals) if row.num_choices > 0 else () for row, _ in rows]


def _catch_up(draft: ScoringModel, rows: Sequence[RoundRow]) -> list[RoundRow]:
    """Feed all tokens of a row that samples nothing, and all but the last token of a long row.
    Return the rows with the tokens that are left to feed."""
    caught_up = []
    long_rows = []
    for row, cached in rows:
        num_left = min(row.num_choices, 1)
        if num_left == 0 or len(row.new_ids) > MAX_FED_AT_ONCE:
            num_fed = len(row.new_ids) - num_left
            long_rows.append((cached.slot, row.new_ids[:num_fed], 0))
            row = row._replace(new_ids=row.new_ids[num_fed:])
        caught_up.append((row, cached))
    if long_rows:
        draft.forward(ForwardInput.of(long_rows))
    return caught_up


def _propose_by_token(
    draft: ScoringModel, rows: Sequence[RoundRow], min_confidence: float
) -> list[tuple[int, ...]]:
    proposals: list[list[int]] = [[] for _ in rows]
    batch = ForwardInput.of((c.slot, row.new_ids, min(row.num_choices, 1)) for row, c in rows)
    live = [index for index, (row, _) in enumerate(rows) if row.num_choices > 0]
    while batch.slots:
        logits = draft.forward(batch).logits
        samples = []
        for i in live:
            row, cached = rows[i]
            needs_history = cached.rules.needs_history
            history = _history(row, cached, proposals[i]) if needs_history else ()
            samples.append(SampleRow(cached.rules, draft.cached_len(cached.slot), history))
        chosen = choose(logits, samples, draft.vocab_size) if samples else []
        kept = _confident(logits, chosen, draft.vocab_size, min_confidence)
        live = [index for index, is_kept in zip(live, kept, strict=True) if is_kept]
        for index, token in zip(live, compress(chosen, kept), strict=True):
            proposals[index].append(token)
        live = [i for i in live if len(proposals[i]) < rows[i][0].num_choices]
        batch = ForwardInput.of((rows[i][1].slot, proposals[i][-1:], 1) for i in live)
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


def _history(row: LeaseRow, cached: CachedSequence, proposal: Sequence[int]) -> tuple[int, ...]:
    """Return the IDs as if the whole proposal were accepted, for rules that need them."""
    return (*cached.ids, *row.new_ids, *proposal)


def score_and_verify(target: ScoringModel, rows: Sequence[RoundRow]) -> list[RowResult]:
    """Catch up, score every proposal in one pass, commit the target's choices, roll back the rest.

    Afterwards a slot caches N' - 1 of the N' committed tokens. A result without tokens belongs to a
    row that only catches up. (NO_CHOICE,) belongs to a row where nothing could be chosen.
    """
    logits = target.forward(_target_input(rows)).logits
    if any([r.num_scored or c.rules.params.num_logprobs is not None for r, c in rows]):
        return _verified_with_logprobs(target, rows, logits)
    samples = _samples(target, rows)
    choices = choose(logits, samples, target.vocab_size) if samples else []
    return _verified(target, rows, choices)


def _target_input(rows: Sequence[RoundRow]) -> ForwardInput:
    """Return the pass that feeds every row its new tokens and its proposal."""
    slots, token_counts, num_logits = [], [], []
    token_ids: list[int] = []
    for row, cached in rows:
        slots.append(cached.slot)
        token_ids += row.new_ids
        token_ids += row.proposal
        count = len(row.new_ids) + len(row.proposal)
        token_counts.append(count)
        # The logits of a scored prompt come first.
        num_logits.append(count if row.num_scored else row.num_choices)
    return ForwardInput(slots, token_counts, num_logits, token_ids)


def _prompt_share(row: LeaseRow, cached: CachedSequence) -> PromptShare:
    """Return the prompt logits that the row needs. A row that scores its prompt takes the logits of
    all fed tokens."""
    return PromptShare(
        num_rows=len(row.new_ids) + len(row.proposal) - row.num_choices if row.num_scored else 0,
        tokens=row.new_ids[1 : 1 + row.num_scored],
        num_top=cached.rules.params.num_prompt_logprobs or 0,
        num_choices=row.num_choices,
    )


def _samples(target: ScoringModel, rows: Sequence[RoundRow]) -> list[SampleRow]:
    """Return a row per choice. Choice j after N committed tokens has the absolute position N + j,
    and sees the proposal as if all of it were accepted."""
    samples: list[SampleRow] = []
    for row, cached in rows:
        rules = cached.rules
        history = _history(row, cached, row.proposal) if rules.needs_history else ()
        num_committed = target.cached_len(cached.slot) - len(row.proposal)
        for j in range(row.num_choices):
            samples.append(SampleRow(rules, num_committed + j, history))
    return samples


def _verified(
    target: ScoringModel, rows: Sequence[RoundRow], choices: Sequence[int]
) -> list[RowResult]:
    """Verify every proposal up to the first position where nothing can be chosen, and roll back the
    rest. The next round reaches that position again, as without speculation."""
    results, end = [], 0
    for row, cached in rows:
        start, end = end, end + row.num_choices
        tokens = tuple(choices[start:end])
        if tokens and row.proposal:
            if NO_CHOICE in tokens:
                tokens = tokens[: max(tokens.index(NO_CHOICE), 1)]
            tokens = verify(row.proposal[: len(tokens) - 1], tokens)
            num_rejected = len(row.proposal) + 1 - len(tokens)
            target.rollback(cached.slot, target.cached_len(cached.slot) - num_rejected)
        answer = row.sequence_id, OK, target.cached_len(cached.slot), tokens
        results.append(RowResult(*answer, max(len(tokens) - 1, 0), num_matched=cached.num_matched))
    return results


def verify(proposal: Sequence[int], choices: tuple[int, ...]) -> tuple[int, ...]:
    """Return the n accepted tokens and the next token, of the target's K + 1 choices."""
    assert len(choices) == len(proposal) + 1, "the target chooses once behind every drafted token"
    num_accepted = 0
    while num_accepted < len(proposal) and proposal[num_accepted] == choices[num_accepted]:
        num_accepted += 1
    return choices[: num_accepted + 1]


def _verified_with_logprobs(
    target: ScoringModel, rows: Sequence[RoundRow], logits: Tensor
) -> list[RowResult]:
    """Verify as `_verified`, and measure the log-probabilities of scored prompts and of committed
    tokens."""
    vocab_size, shares = target.vocab_size, [_prompt_share(*pair) for pair in rows]
    prompts, logits = take_prompts(logits, shares, vocab_size)
    samples = _samples(target, rows)
    choices = choose(logits, samples, vocab_size) if samples else []
    results = _verified(target, rows, choices)
    return _with_logprobs(results, rows, samples, logits, prompts, vocab_size)


def _with_logprobs(
    results: Sequence[RowResult],
    rows: Sequence[RoundRow],
    samples: Sequence[SampleRow],
    logits: Tensor,
    prompts: Sequence[tuple[TokenLogprobs, ...]],
    vocab_size: int,
) -> list[RowResult]:
    """Return the results with log-probabilities, measured only for committed tokens. Those of
    prompts were taken before."""
    tokens: list[int] = []
    for (row, _), result in zip(rows, results, strict=True):
        num_unused = row.num_choices - len(result.tokens)
        tokens += (*result.tokens, *[NO_CHOICE] * num_unused)
    measured = iter(measure_logprobs(logits, samples, tokens, vocab_size))
    shares = [tuple(islice(measured, row.num_choices)) for row, _ in rows]
    return [
        result._replace(
            logprobs=tuple(entry for entry in share if entry is not None), prompt_logprobs=prompt
        )
        for result, share, prompt in zip(results, shares, prompts, strict=True)
    ]
