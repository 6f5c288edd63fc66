"""What the tests of this folder can see: every wrong law here is rejected by the same statistic.

First laws that differ a little from the right one, against what the code emits; then code that is
broken in one place, against the right law.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from specdec_core import SamplingParams
from specdec_core.config import SpecMethod
from specdec_core.messages import LeaseRow
from specdec_core.sampling import sampler as sampling
from specdec_core.sampling.gumbel import noise_keys
from specdec_core.worker import round as speculative_round
from specdec_core.worker.round import CachedSequence
from tests.distribution.checks import check
from tests.distribution.law import Context, NextLaw, next_id_law
from tests.distribution.processors import PROCESSORS, WINDOWS
from tests.distribution.runs import Counts, Setting, draw
from tests.distribution.samples import PLAIN, many_of, sample_of

Logits = Sequence[float]
Params = SamplingParams


def changed(**fields: object) -> NextLaw:
    """The law of other parameters."""

    def law(z: Logits, params: Params, context: Context) -> Mapping[int, float]:
        return next_id_law(z, replace(params, **fields), context)  # type: ignore[arg-type]

    law.__name__ = " ".join(f"{name}={value}" for name, value in fields.items())
    return law


def one_more_in_the_nucleus(z: Logits, params: Params, context: Context) -> Mapping[int, float]:
    kept = len(next_id_law(z, params, context))
    return next_id_law(z, replace(params, top_p=1.0, top_k=kept + 1), context)


def one_fewer_in_the_nucleus(z: Logits, params: Params, context: Context) -> Mapping[int, float]:
    kept = len(next_id_law(z, params, context))
    return next_id_law(z, replace(params, top_p=1.0, top_k=max(kept - 1, 1)), context)


def nucleus_before_temperature(z: Logits, params: Params, context: Context) -> Mapping[int, float]:
    kept = len(next_id_law(z, replace(params, temperature=1.0), context))
    return next_id_law(z, replace(params, top_p=1.0, top_k=kept), context)


def min_p_of_the_whole_mass(z: Logits, params: Params, context: Context) -> Mapping[int, float]:
    law = next_id_law(z, replace(params, min_p=0.0), context)
    kept = sum(p >= params.min_p for p in law.values())
    return next_id_law(z, replace(params, min_p=0.0, top_k=max(kept, 1)), context)


def top_p_before_min_p(z: Logits, params: Params, context: Context) -> Mapping[int, float]:
    kept = len(next_id_law(z, replace(params, min_p=0.0, top_k=0), context))
    return next_id_law(z, replace(params, top_p=1.0, top_k=min(kept, params.top_k)), context)


def without_emitted_ids(z: Logits, params: Params, context: Context) -> Mapping[int, float]:
    return next_id_law(z, params, context._replace(emitted=()))


def without_drafted_ids(z: Logits, params: Params, context: Context) -> Mapping[int, float]:
    """As if one round emitted all but the first id, and saw only what was committed before."""
    return next_id_law(z, params, context._replace(emitted=context.emitted[:1]))


def without_the_last_id(z: Logits, params: Params, context: Context) -> Mapping[int, float]:
    return next_id_law(z, params, context._replace(emitted=context.emitted[:-1]))


def with_the_prompt_as_output(z: Logits, params: Params, context: Context) -> Mapping[int, float]:
    return next_id_law(z, params, context._replace(emitted=(*context.prompt, *context.emitted)))


def without_the_prompt(z: Logits, params: Params, context: Context) -> Mapping[int, float]:
    return next_id_law(z, params, context._replace(prompt=()))


def frequency_as_presence(z: Logits, params: Params, context: Context) -> Mapping[int, float]:
    other = replace(
        params, presence_penalty=params.frequency_penalty, frequency_penalty=params.presence_penalty
    )
    return next_id_law(z, other, context)


def always_divided(z: Logits, params: Params, context: Context) -> Mapping[int, float]:
    """A repetition penalty that makes ids with negative logits likelier."""
    seen = {*context.prompt, *context.emitted}
    z = [value / params.repetition_penalty if v in seen else value for v, value in enumerate(z)]
    return next_id_law(z, replace(params, repetition_penalty=1.0), context)


def bias_behind_penalties(z: Logits, params: Params, context: Context) -> Mapping[int, float]:
    """By asking for the penalised logits first: the law of raw logits at temperature 1."""
    plain = Params(
        repetition_penalty=params.repetition_penalty,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
    )
    law = next_id_law(z, plain, context)
    others = replace(params, repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0)
    return next_id_law([math.log(law[v]) for v in range(len(z))], others, context)


WRONG_LAWS: list[tuple[str, NextLaw]] = [
    ("cold", changed(temperature=0.8)),
    ("top_k", changed(top_k=4)),
    ("top_k", changed(top_k=2)),
    ("top_p", one_more_in_the_nucleus),
    ("top_p", one_fewer_in_the_nucleus),
    ("top_p", nucleus_before_temperature),
    ("min_p", min_p_of_the_whole_mass),
    ("presence_penalty", without_emitted_ids),
    ("presence_penalty", without_drafted_ids),
    ("presence_penalty", without_the_last_id),
    ("presence_penalty", with_the_prompt_as_output),
    ("presence_reward", frequency_as_presence),
    ("frequency_penalty", without_drafted_ids),
    ("frequency_penalty", without_the_last_id),
    ("frequency_reward", frequency_as_presence),
    ("repetition_penalty", without_drafted_ids),
    ("repetition_penalty", without_the_prompt),
    ("repetition_penalty", always_divided),
    ("logit_bias", changed(logit_bias=())),
    ("min_tokens", changed(min_tokens=1)),
    ("min_tokens", changed(min_tokens=3)),
    ("allowed_token_ids", changed(allowed_token_ids=(0, 1, 2, 4))),
    ("bad_words", without_drafted_ids),
    ("bad_words", with_the_prompt_as_output),
    ("all_together", bias_behind_penalties),
]


WRONG_LAWS_FOR_MANY_SEEDS: list[tuple[str, NextLaw]] = [
    ("untouched", changed(temperature=1.08)),
    ("untouched", changed(min_p=0.01)),
    ("filters_together", top_p_before_min_p),
    ("filters_together", one_more_in_the_nucleus),
]


def id_of(case: object) -> str:
    return getattr(case, "__name__", str(case))


@pytest.mark.parametrize(("name", "wrong_law"), WRONG_LAWS, ids=id_of)
def test_a_law_that_is_a_little_wrong_is_rejected(name: str, wrong_law: NextLaw) -> None:
    assert_some_window_is_rejected(sample_of(PLAIN).counts[name], name, wrong_law)


@pytest.mark.parametrize(("name", "wrong_law"), WRONG_LAWS_FOR_MANY_SEEDS, ids=id_of)
def test_many_seeds_reject_a_law_that_is_hardly_wrong(name: str, wrong_law: NextLaw) -> None:
    assert_some_window_is_rejected(many_of(name).counts[name], name, wrong_law)


def assert_some_window_is_rejected(counts: Counts, name: str, law: NextLaw = next_id_law) -> None:
    results = [check(counts, PROCESSORS[name], window, law) for window in WINDOWS]
    assert any(result.is_rejected for result in results), [str(result) for result in results]


SPECULATING = Setting(method=SpecMethod.DRAFT_MODEL, k=3)


def assert_rejected(name: str) -> None:
    processors = {name: PROCESSORS[name]}
    counts = draw(SPECULATING, processors, first_seed=0, num_seeds=600).counts[name]
    assert_some_window_is_rejected(counts, name)


def test_noise_that_is_reused_at_every_position_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def keys_without_position(pairs: Sequence[tuple[int, int]], device: torch.device) -> Tensor:
        return noise_keys([(seed, 0) for seed, _ in pairs], device)

    monkeypatch.setattr(sampling, "noise_keys", keys_without_position)
    assert_rejected("untouched")


def test_noise_that_is_reused_at_every_second_position_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def keys_of_pairs(pairs: Sequence[tuple[int, int]], device: torch.device) -> Tensor:
        return noise_keys([(seed, position // 2) for seed, position in pairs], device)

    monkeypatch.setattr(sampling, "noise_keys", keys_of_pairs)
    assert_rejected("untouched")


@pytest.mark.parametrize("name", ["presence_penalty", "repetition_penalty", "bad_words"])
def test_rules_that_see_other_ids_than_the_drafted_ones_are_rejected(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def history_without_drafts(
        row: LeaseRow, cached: CachedSequence, proposal: Sequence[int]
    ) -> tuple[int, ...]:
        return (*cached.ids, *row.new_ids, *[row.new_ids[-1]] * len(proposal))

    monkeypatch.setattr(speculative_round, "_history", history_without_drafts)
    assert_rejected(name)


def test_accepting_a_drafted_token_that_the_target_did_not_choose_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the draft guesses wrong, its token is emitted all the same."""

    def accept_one(proposal: Sequence[int], choices: tuple[int, ...]) -> tuple[int, ...]:
        return (proposal[0], choices[1]) if proposal else choices[:1]

    monkeypatch.setattr(speculative_round, "verify", accept_one)
    assert_rejected("untouched")


def test_a_next_token_chosen_only_when_it_differs_from_the_draft_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rejection sampling's residual without its acceptance rule: the drafted id, once rejected at
    another place, may not come."""

    def last_choice(proposal: Sequence[int], choices: tuple[int, ...]) -> tuple[int, ...]:
        same = all(x == y for x, y in zip(proposal, choices, strict=False))
        return choices if same else choices[-1:]

    monkeypatch.setattr(speculative_round, "verify", last_choice)
    assert_rejected("untouched")
