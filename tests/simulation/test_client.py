"""The simulated client knows which tokens it may be told."""

from __future__ import annotations

import pytest

from deployments.simulation.client import Client, Outcome
from deployments.simulation.record import Violation
from deployments.simulation.tokens import Script
from specdec_core.errors import InvalidRequestError
from specdec_core.request import Request, TokenEvent
from specdec_core.sampling_params import SamplingParams

VOCAB = 13


def resumed(first: str, second: str, number_brought: int = 1) -> tuple[Client, Script]:
    """A client that targets of `first` began. It brings back what those of `second` choose."""
    params = SamplingParams(max_tokens=6, ignore_eos=True, seed=3)
    request = Request(request_id="r", prompt_token_ids=(1, 2, 3), params=params)
    client = Client(request, is_invalid=False, now=lambda: 0.0)
    own, other = (Script(request, bits, VOCAB) for bits in (first, second))
    client.scripts = [own, other]
    client.hear(TokenEvent("r", 0, own.tokens[:1]))
    client.resume(other.tokens[:number_brought])
    return client, other


def test_spoilt_tokens_that_other_targets_would_choose_go_on_as_theirs() -> None:
    """Seed 684: one of 13 tokens is right by luck."""
    client, other = resumed("bits-1", "bits-2")
    assert client.scripts[0].tokens[0] != other.tokens[0]
    client.hear(TokenEvent("r+1", 0, other.tokens[:1]))
    client.hear(TokenEvent("r+1", 1, other.tokens[1:2]))


def test_an_answer_of_two_kinds_of_targets_is_a_violation() -> None:
    client, other = resumed("bits-1", "bits-2")
    client.hear(TokenEvent("r+1", 0, other.tokens[:1]))
    wrong = next(t for t in range(VOCAB) if t != other.tokens[1])
    with pytest.raises(Violation, match="received"):
        client.hear(TokenEvent("r+1", 1, (wrong,)))


def test_spoilt_tokens_may_be_refused_and_others_may_not() -> None:
    client, _ = resumed("bits-1", "bits-2")
    client.scripts.pop()
    client.fail(InvalidRequestError("other tokens"))
    assert client.outcome is Outcome.INVALID
    honest, _ = resumed("bits-1", "bits-1")
    honest.scripts.pop()
    with pytest.raises(Violation, match="refused without a reason"):
        honest.fail(InvalidRequestError("other tokens"))
