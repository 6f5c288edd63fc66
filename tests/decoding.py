"""What tests of whole engines share: speculation with a fixed K, and the IDs of every answer."""

from __future__ import annotations

from collections.abc import Iterable

from specdec_core import Request, SpecMethod, SpeculationConfig
from specdec_core.config import KPolicyName
from specdec_core.engine import Engine


def fixed_k(method: SpecMethod, k: int = 4) -> SpeculationConfig:
    """Return speculation that drafts `k` tokens whatever they cost."""
    return SpeculationConfig(method=method, num_draft_tokens=k, k_policy=KPolicyName.FIXED)


def answer_ids(engine: Engine, requests: Iterable[Request]) -> dict[str, list[int]]:
    """Run all requests; return the token IDs of each answer by the name of its request."""
    asked = list(requests)
    answers: dict[str, list[int]] = {request.request_id: [] for request in asked}
    for event in engine.generate(asked):
        answers[event.request_id] += event.token_ids
    return answers
