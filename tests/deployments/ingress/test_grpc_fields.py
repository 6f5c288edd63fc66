"""What a GenerateRequest can say besides sampling: choices, and how the text is shown."""

from __future__ import annotations

import grpc
import pytest

from specdec.v1 import generation_pb2 as pb
from specdec_core.sampling_params import derive_seed
from tests.deployments.fake_replica import continuation
from tests.deployments.fake_text import fake_text_model
from tests.deployments.ingress.test_grpc_api import FakeContext, api

TEXT = fake_text_model()
SAMPLING = pb.SamplingParams(temperature=0, max_tokens=20, seed=7)
EXPECTED = continuation(TEXT.encode("HELLO"), 20)


async def test_choices_are_told_apart_and_each_has_a_seed_and_an_end() -> None:
    async with api() as (calls, parts):
        message = pb.GenerateRequest(prompt="HELLO", sampling=SAMPLING, n=3)
        told = [part async for part in calls.generate(message, FakeContext())]
        for choice in range(3):
            mine = [part for part in told if part.choice == choice]
            assert [i for part in mine for i in part.token_ids] == EXPECTED
            assert mine[-1].finish_reason == pb.FINISH_REASON_LENGTH
            assert mine[-1].usage.completion_tokens == 20
            assert {part.seed for part in mine} == {derive_seed(7, choice)}
            assert len({part.request_id for part in mine}) == 1
        assert len({part.request_id for part in told}) == 3
        seeds = {rules.params.seed for rules in parts.replicas["t0"].rules_seen}
        assert seeds == {derive_seed(7, choice) for choice in range(3)}


async def test_an_abort_of_one_choice_ends_all() -> None:
    async with api() as (calls, _):
        sampling = pb.SamplingParams(temperature=0, max_tokens=480)
        message = pb.GenerateRequest(prompt="HELLO", sampling=sampling, n=2, request_id="a")
        ends = []
        async for part in calls.generate(message, FakeContext()):
            if not ends and part.index == 0 and part.choice == 0:
                await calls.abort(pb.AbortRequest(request_id="a-1"), FakeContext())
            if part.finish_reason:
                ends.append(part.finish_reason)
        assert ends == [pb.FINISH_REASON_ABORT] * 2


@pytest.mark.parametrize(("n", "message"), [(129, "the limit is 128"), (-1, "n=-1")])
async def test_impossible_numbers_of_choices_are_refused(n: int, message: str) -> None:
    async with api() as (calls, _):
        context = FakeContext()
        asked = pb.GenerateRequest(prompt="HELLO", sampling=SAMPLING, n=n)
        assert await anext(calls.generate(asked, context)) == pb.GenerateResponse()
        assert context.code is grpc.StatusCode.INVALID_ARGUMENT
        assert message in context.details


async def test_one_message_holds_one_output() -> None:
    async with api() as (calls, _):
        context = FakeContext()
        asked = pb.GenerateRequest(prompt="HELLO", sampling=SAMPLING, n=2)
        await calls.generate_once(asked, context)
        assert context.code is grpc.StatusCode.INVALID_ARGUMENT
        assert "n=2" in context.details


@pytest.mark.parametrize("includes_stop", [False, True])
async def test_the_stop_string_is_named_and_shown_where_that_is_asked(includes_stop: bool) -> None:
    async with api() as (calls, _):
        full = TEXT.decode(EXPECTED)
        stop = full[6:8]
        asked = pb.GenerateRequest(
            prompt="HELLO",
            sampling=SAMPLING,
            stop=[stop],
            include_stop_str_in_output=includes_stop,
        )
        answer = await calls.generate_once(asked, FakeContext())
        end = full.index(stop) + len(stop) * includes_stop
        assert (answer.text, answer.stop_string) == (full[:end], stop)


async def test_a_prompt_may_be_cut_to_its_end() -> None:
    async with api() as (calls, _):
        asked = pb.GenerateRequest(prompt="XYHELLO", sampling=SAMPLING, truncate_prompt_tokens=5)
        answer = await calls.generate_once(asked, FakeContext())
        assert list(answer.token_ids) == EXPECTED
        assert answer.usage.prompt_tokens == 5
