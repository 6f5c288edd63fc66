"""Sampling fields and log-probabilities over gRPC."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from deployments.wire.request_codec import logprobs_from_pb
from specdec.v1 import generation_pb2 as pb
from specdec_core.sampling_params import SamplingParams
from tests.deployments.fake_replica import expected_logprobs
from tests.deployments.ingress.test_grpc_api import GREEDY, TEXT, FakeContext, api


@pytest.mark.parametrize(
    ("fields", "details"),
    [
        ({"logit_bias": {50: 1.0}}, "logit_bias: token id 50 is not in 0..49"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias: '-1' is not a token id"),
        ({"logprobs": 21}, "logprobs must be in 0..20, got 21"),
        ({"presence_penalty": -2.5}, "presence_penalty must be in -2..2, got -2.5"),
        ({"repetition_penalty": float("nan")}, "repetition_penalty must be in 0.01..100, got nan"),
        ({"allowed_token_ids": [3, 50]}, "allowed_token_ids: token id 50 is not in 0..49"),
        ({"bad_word_ids": [pb.TokenIds(ids=[1, 99])]}, "bad_word_ids: token id 99"),
        ({"bad_word_ids": [pb.TokenIds()]}, "bad_words must be non-empty"),
        ({"bad_words": ["  "]}, "bad word is empty"),
        ({"min_tokens": 9, "max_tokens": 8}, "min_tokens must be in 0..max_tokens=8, got 9"),
    ],
)
async def test_bad_values_are_refused_by_name(fields: dict[str, Any], details: str) -> None:
    async with api() as (calls, parts):
        message = pb.GenerateRequest(prompt="A", sampling=pb.SamplingParams(**fields))
        context = FakeContext()
        await calls.generate_once(message, context)
        assert context.code is grpc.StatusCode.INVALID_ARGUMENT
        assert details in context.details
        assert not parts.replicas["t0"].rules_seen


async def test_every_sampling_field_reaches_the_replicas() -> None:
    async with api() as (calls, parts):
        fields: dict[str, Any] = {
            "temperature": 0.0,
            "top_k": 0,
            "top_p": 0.5,
            "min_p": 0.25,
            "seed": 0,
            "max_tokens": 20,
            "stop_token_ids": (9,),
            "ignore_eos": True,
            "presence_penalty": 0.5,
            "frequency_penalty": -0.25,
            "repetition_penalty": 1.5,
            "min_tokens": 3,
            "allowed_token_ids": (3, 4, 5),
        }
        sampling = pb.SamplingParams(
            **fields,
            logit_bias={7: -100, 3: 2.5},
            bad_words=["AB"],
            bad_word_ids=[pb.TokenIds(ids=[1, 2])],
            logprobs=0,
        )
        for message in (sampling, pb.SamplingParams(max_tokens=3)):
            asked = pb.GenerateRequest(prompt="A", sampling=message)
            context = FakeContext()
            await calls.generate_once(asked, context)
            assert context.code is None, context.details
        named, bare = [rules.params for rules in parts.replicas["t0"].rules_seen]
        assert named == SamplingParams(
            **fields,
            logit_bias=((3, 2.5), (7, -100.0)),
            bad_words=((17, 18), (1, 2)),
            num_logprobs=0,
        )
        assert bare == SamplingParams(max_tokens=3, seed=bare.seed)


@pytest.mark.parametrize("count", [0, 3])
async def test_log_probabilities_come_with_their_tokens(count: int) -> None:
    async with api() as (calls, _):
        sampling = pb.SamplingParams(max_tokens=20, temperature=0, logprobs=count)
        message = pb.GenerateRequest(prompt="HELLO", sampling=sampling)
        expected = expected_logprobs(TEXT.encode("HELLO"), 20, count)
        whole = await calls.generate_once(message, FakeContext())
        assert list(logprobs_from_pb(whole.logprobs)) == expected
        parts = [part async for part in calls.generate(message, FakeContext())]
        assert len(parts) > 1
        for part in parts:
            assert len(part.logprobs.logprobs) == len(part.token_ids)
            assert len(part.logprobs.top_ids) == count * len(part.token_ids)
        assert [e for p in parts for e in logprobs_from_pb(p.logprobs)] == expected
        bare = pb.GenerateRequest(prompt="HELLO", sampling=GREEDY)
        assert not (await calls.generate_once(bare, FakeContext())).HasField("logprobs")
