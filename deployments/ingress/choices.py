"""The choices of a request. Each has the same prompt, its own name and its own seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from deployments.ingress.generation_request import Generation
from specdec_core.seeds import derive_seed


def choices_of(ones: Sequence[Generation], n: int) -> list[Generation]:
    """Return `n` choices of every prompt, in prompt order.

    Names and seeds derive from those of the first request.
    """
    first = ones[0].request
    return [
        _choice(one, first.request_id, place * n + j, j, derive_seed(first.params.seed, j))
        for place, one in enumerate(ones)
        for j in range(n)
    ]


def _choice(one: Generation, first_id: str, place: int, choice: int, seed: int) -> Generation:
    request = replace(
        one.request,
        request_id=f"{first_id}-{place}" if place else first_id,
        params=replace(one.request.params, seed=seed),
    )
    return replace(one, request=request, choice=choice)
