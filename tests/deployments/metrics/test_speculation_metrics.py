"""`metrics.speculative_decoding`: how much is told of a request's rounds, and that it adds up."""

from __future__ import annotations

import pytest

from deployments.config.service import SpecMetrics
from tests.deployments.http_server import completion, server, stream

SUMMARY = {
    "mean_acceptance_length",
    "draft_acceptance_rate",
    "acceptance_histogram",
    "num_spec_steps",
    "num_accepted_draft_tokens",
    "num_draft_tokens",
    "num_spec_tokens",
}
STEPS = {"per_step_drafted", "per_step_accepted"}
LOOPING = "HELLO" * 8
"""Prompt lookup always finds something in it."""


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (SpecMetrics.NONE, None),
        (SpecMetrics.SUMMARY, SUMMARY),
        (SpecMetrics.DETAILED, SUMMARY | STEPS),
    ],
)
async def test_as_much_is_told_as_the_server_says(
    level: SpecMetrics, expected: set[str] | None
) -> None:
    async with server(metrics=level) as (client, _):
        body = completion(prompt=LOOPING, stream_options={"include_usage": True})
        whole = (await client.post("/v1/completions", json=body)).json()
        *_, last = await stream(client, "/v1/completions", body)
        for answer in (whole, last):
            told = answer.get("metrics", {}).get("speculative_decoding")
            assert (None if told is None else set(told)) == expected


async def test_steps_add_up_to_the_totals() -> None:
    async with server(metrics=SpecMetrics.DETAILED) as (client, _):
        body = completion(prompt=LOOPING, max_tokens=60)
        answer = (await client.post("/v1/completions", json=body)).json()
        told = answer["metrics"]["speculative_decoding"]
        drafted, accepted = told["per_step_drafted"], told["per_step_accepted"]
        assert len(drafted) == len(accepted) == told["num_spec_steps"] > 0
        assert sum(drafted) == told["num_draft_tokens"]
        assert sum(accepted) == told["num_accepted_draft_tokens"]
        histogram = [accepted.count(n) for n in range(told["num_spec_tokens"] + 1)]
        assert histogram == told["acceptance_histogram"]
        assert all(0 <= a <= d for a, d in zip(accepted, drafted, strict=True))
