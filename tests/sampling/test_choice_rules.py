"""What a sequence's tokens are chosen by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import GrammarKind, GrammarSpec
from specdec_core.sampling_params import SamplingParams, SamplingRules

GRAMMAR = GrammarSpec(GrammarKind.REGEX, "a+")
PLAIN = SamplingParams(temperature=0.8, top_p=0.9, logit_bias=((5, 1.0),), seed=3)


def test_logits_alone_decide_where_nothing_looks_at_ids() -> None:
    assert not SamplingRules(PLAIN, 3).needs_history


@pytest.mark.parametrize(
    "looks_at_ids",
    [
        {"presence_penalty": 0.1},
        {"frequency_penalty": -0.1},
        {"repetition_penalty": 0.9},
        {"bad_words": ((1, 2),)},
        {"grammar": GRAMMAR},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_whatever_looks_at_ids_needs_them(looks_at_ids: dict[str, Any]) -> None:
    assert SamplingRules(replace(PLAIN, **looks_at_ids), 3).needs_history


def test_only_parameters_off_their_defaults_change_logits() -> None:
    assert (
        SamplingRules(SamplingParams(temperature=0.8, top_k=3, min_p=0.1), 3).logit_fields == set()
    )
    both = SamplingParams(logit_bias=((5, 1.0),), repetition_penalty=1.1)
    assert SamplingRules(both, 3).logit_fields == {"logit_bias", "repetition_penalty"}


def test_a_compiled_grammar_comes_with_the_other_rules() -> None:
    rules = SamplingRules(replace(PLAIN, grammar=GRAMMAR), 3, frozenset({7}), "salt")
    made: Any = object()
    compiled = rules.compiled(lambda spec: made if spec is GRAMMAR else None)
    assert compiled.grammar is made
    assert compiled == rules, "a grammar is its text"
    assert (compiled.prompt_len, compiled.stop_ids, compiled.cache_salt) == (3, {7}, "salt")
    assert compiled.needs_history


def test_without_a_grammar_nothing_is_compiled() -> None:
    rules = SamplingRules(PLAIN, 3)
    assert rules.compiled(None) is rules


def test_where_nobody_compiles_a_grammar_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="structured output is not supported here"):
        SamplingRules(replace(PLAIN, grammar=GRAMMAR), 3).compiled(None)
