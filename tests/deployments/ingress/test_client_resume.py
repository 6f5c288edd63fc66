"""A stream that is resumed behind any token tells the rest of the text, and nothing twice."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from deployments.api.http.responses import CHAT, Choice, Response
from deployments.config.service import SpecMetrics
from deployments.errors import FingerprintError
from deployments.ingress.client_resume import check_fingerprint
from deployments.ingress.generation import GenerationService
from deployments.ingress.generation_request import (
    AnswerOptions,
    Generation,
    GenerationRequest,
    Resume,
)
from deployments.ingress.output import OutputChunk
from deployments.observability.metrics.request_times import IngressTimes
from deployments.text.answers.asking import CallsAsked
from deployments.text.tokenizer import TextModel, load_text_model
from specdec_core.config import SpeculationConfig
from specdec_core.errors import InvalidRequestError
from specdec_core.logprobs import TokenLogprobs
from specdec_core.request import Request, RequestStats, TokenEvent, cut_at_stop
from tests.service.tiny_folder import save_tiny_llama

ANSWER = (
    "naïve 日本語 🙂🙂 and then END of it\n"
    '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>\n'
    '<tool_call>{"name": "time", "arguments": {}}</tool_call> <tool_call> 🙂'
)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    folder = save_tiny_llama(tmp_path_factory.mktemp("text"))
    return load_text_model(str(folder), tool_call_parser="hermes")


class ScriptedPool:
    """Emits the same ids for every request, in rounds of chance lengths."""

    state = None

    def __init__(self, ids: Sequence[int], seed: int = 0) -> None:
        self.times = IngressTimes()
        self.num_aborted = 0
        self._ids = tuple(ids)
        self._chance = random.Random(seed)

    def new_request_id(self) -> str:
        return "scripted"

    async def abort(self, request_id: str) -> bool:
        self.num_aborted += 1
        return True

    async def generate(self, request: Request, **_: Any) -> AsyncIterator[TokenEvent]:
        index = 0
        while True:
            tokens = self._ids[index : index + self._chance.randint(1, 6)]
            budget = request.params.max_tokens - index
            tokens, reason = cut_at_stop(tokens, request.stop_ids, budget)
            yield TokenEvent(
                request.request_id,
                index,
                tokens,
                reason,
                RequestStats() if reason else None,
                logprobs=tuple(TokenLogprobs(-float(index + i), ()) for i in range(len(tokens))),
            )
            index += len(tokens)
            if reason is not None:
                return


def service_of(text: TextModel, pool: Any) -> GenerationService:
    return GenerationService(
        text, pool, model_name="m", speculation=SpeculationConfig(), stats_wait_s=0.01
    )


def answer_of(
    text: TextModel, generation: Generation, pieces: Sequence[OutputChunk]
) -> dict[str, Any]:
    """Everything that a chat's chunks tell, joined."""
    response = Response(
        shape=CHAT,
        choices=[Choice(0, generation)],
        n=1,
        model="m",
        system_fingerprint="",
        num_spec_tokens=lambda _: 0,
        token_bytes=text.token_bytes,
        metrics=SpecMetrics.NONE,
        created=0,
        return_token_ids=True,
    )
    chunks = [json.loads(response.event(0, piece).removeprefix("data: ")) for piece in pieces]
    entries = [chunk["choices"][0] for chunk in chunks]
    calls = [call for entry in entries for call in entry["delta"].get("tool_calls", [])]
    return {
        "content": "".join(entry["delta"].get("content", "") for entry in entries),
        "calls": [(call["index"], call["function"]) for call in calls],
        "token_ids": [i for entry in entries for i in entry["token_ids"]],
        "logprobs": [one for entry in entries for one in entry["logprobs"]["content"]],
        "finish": (entries[-1]["finish_reason"], entries[-1].get("stop_reason")),
        "usage": response.usage_chunk()["usage"],
    }


def told(
    text: TextModel,
    ids: Sequence[int],
    ask: GenerationRequest,
    seed: int = 0,
    *,
    streams: bool = True,
) -> tuple[list[OutputChunk], Generation]:
    async def scenario() -> tuple[list[OutputChunk], Generation]:
        service = service_of(text, ScriptedPool(ids, seed))
        generations = await service.checked_choices([(5,)], ask, 1)
        pieces = [piece async for _, piece in service.run_choices(generations, streams=streams)]
        return pieces, generations[0]

    return asyncio.run(scenario())


def with_resume(ask: GenerationRequest, ids: Sequence[int]) -> GenerationRequest:
    return replace(ask, resume=Resume(token_ids=[tuple(ids)]))


def joined_parts(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    both = {key: first[key] + second[key] for key in ("content", "calls", "token_ids", "logprobs")}
    return both | {key: second[key] for key in ("finish", "usage")}


CALLS = AnswerOptions(calls=CallsAsked([{"type": "function", "function": {"name": "time"}}]))
ASKS = {
    "length": {},
    "stop string": {"stop": ["never said", "END"]},
    "held back": {"stop": ["🙂🙂🙂", "then ENDS"]},
    "stop id": {"is_cut": True},
}


@pytest.mark.parametrize("name", ASKS)
@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.nightly) for s in (1, 2))])
def test_what_two_connections_tell_is_what_one_would_have(
    text: TextModel, name: str, seed: int
) -> None:
    """Cut behind every message of streams whose messages differ."""
    ids = text.encode(ANSWER)
    named = dict(ASKS[name])
    sampling: dict[str, Any] = {"max_tokens": len(ids), "logprobs": 0, "seed": 7}
    if named.pop("is_cut", False):
        sampling["stop_token_ids"] = [ids[-1]]
        sampling["max_tokens"] += 5
    ask = GenerationRequest(sampling=sampling, answer=CALLS, **named)  # type: ignore[arg-type]
    pieces, generation = told(text, ids, ask, seed)
    whole = answer_of(text, generation, pieces)
    for count in range(len(pieces) + 1):
        has = [i for piece in pieces[:count] for i in piece.token_ids]
        again = with_resume(ask, has)
        rest, resumed = told(text, ids, again, seed + 1)
        if count:
            first = answer_of(text, generation, pieces[:count])
            both = joined_parts(first, answer_of(text, resumed, rest))
            assert both == whole, f"cut behind {count} messages"
        entire, _ = told(text, ids, again, seed + 1, streams=False)
        assert answer_of(text, generation, entire) == whole


def test_ids_behind_the_end_by_a_stop_string_are_refused(text: TextModel) -> None:
    ids = text.encode(ANSWER)
    ask = GenerationRequest(sampling={"max_tokens": len(ids), "temperature": 0.0}, stop=["END"])
    pieces, _ = told(text, ids, ask)
    end = pieces[-1].index + len(pieces[-1].token_ids)
    told(text, ids, with_resume(ask, ids[:end]))
    message = rf"resume has {end + 1} token ids, but the answer ends with its token {end}"
    with pytest.raises(InvalidRequestError, match=message):
        told(text, ids, with_resume(ask, ids[: end + 1]))


@pytest.mark.parametrize(
    ("resume", "sampling", "n", "message"),
    [
        (Resume(token_ids=[(5,)]), {}, 1, "resume.seed is missing: at temperature 1, send"),
        (Resume(token_ids=[(5,)], seed=3), {"seed": 4}, 1, "resume.seed=3 and seed=4 differ"),
        (Resume(token_ids=[(5,)], seed=-(2**64)), {}, 1, "seed"),
        (
            Resume(token_ids=[(5,)]),
            {"seed": -1},
            1,
            "resume.seed is missing: at temperature 1, send",
        ),
        (
            Resume(token_ids=[(5,)], seed=-1),
            {},
            1,
            "resume.seed is missing: at temperature 1, send",
        ),
        (Resume(token_ids=[(5,)], seed=3), {"seed": -4}, 1, "resume.seed=3 and seed=-4 differ"),
        (Resume(token_ids=[(5,)], seed=3), {}, 2, "has 1 lists, the request has 2 choices"),
        (Resume(token_ids=[(5, 9999)], seed=3), {}, 1, "9999"),
        (Resume(token_ids=[(5,) * 9], seed=3), {}, 1, "resume has 9 token ids, max_tokens is 8"),
        (
            Resume(token_ids=[(5, 6, 7)], seed=3),
            {"stop_token_ids": [6]},
            1,
            "token id 6 at position 1 ends the answer, but 1 token ids follow",
        ),
    ],
)
def test_what_no_answer_can_have_been_is_refused(
    text: TextModel, resume: Resume, sampling: dict[str, Any], n: int, message: str
) -> None:
    service = service_of(text, ScriptedPool(()))
    ask = GenerationRequest(sampling={"max_tokens": 8, **sampling}, resume=resume)
    with pytest.raises(InvalidRequestError, match=message):
        asyncio.run(service.checked_choices([(5,)], ask, n))


def test_without_ids_an_answer_begins_anew(text: TextModel) -> None:
    """Nothing had come, so nothing is known of its seed."""
    service = service_of(text, ScriptedPool(()))
    ask = GenerationRequest(resume=Resume(token_ids=[(), ()]))
    assert len(asyncio.run(service.checked_choices([(5,)], ask, 2))) == 2


def test_the_choices_have_ids_and_seeds_of_their_own(text: TextModel) -> None:
    service = service_of(text, ScriptedPool(()))
    anew = asyncio.run(service.checked_choices([(5,)], GenerationRequest(sampling={"seed": 9}), 2))
    again = asyncio.run(
        service.checked_choices(
            [(5,)], GenerationRequest(resume=Resume(token_ids=[(1, 4), (7,)], seed=9)), 2
        )
    )
    assert [one.request.resume_token_ids for one in again] == [(1, 4), (7,)]
    assert [one.request.params.seed for one in again] == [one.request.params.seed for one in anew]


@pytest.mark.parametrize("seed", [-1, -2, -(2**63), 0, 2**63 - 1])
def test_the_seed_that_was_told_resumes_an_answer_to_any_seed(text: TextModel, seed: int) -> None:
    service = service_of(text, ScriptedPool(()))
    ask = GenerationRequest(sampling={"seed": seed})
    anew = [one.request.params.seed for one in asyncio.run(service.checked_choices([(5,)], ask, 2))]
    again = replace(ask, resume=Resume(token_ids=[(1, 4), (7,)], seed=anew[0]))
    found = asyncio.run(service.checked_choices([(5,)], again, 2))
    assert [one.request.params.seed for one in found] == anew


def test_an_answer_of_another_model_is_refused_where_the_client_says_which() -> None:
    resume = Resume(token_ids=[()], system_fingerprint="a")
    check_fingerprint(resume, "a")
    check_fingerprint(resume, "")
    check_fingerprint(Resume(token_ids=[()]), "b")
    with pytest.raises(FingerprintError, match="is 'a', but this server now has 'b'"):
        check_fingerprint(resume, "b")
