"""Answers that are resumed over HTTP, and the refusal of everything that is none."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.deployments.cell import Cell
from tests.deployments.fake_replica import VOCAB_SIZE, continuation
from tests.deployments.http_server import TEXT, completion, expected_text, server, stream

IDS = continuation(TEXT.encode("HELLO"), 20)
COUNTS_USAGE = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
PATH = "/v1/completions"


def text_of(chunks: list[dict[str, Any]]) -> str:
    return "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])


def ids_of(chunks: list[dict[str, Any]], index: int = 0) -> list[int]:
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    return [i for one in choices if one["index"] == index for i in one["token_ids"]]


def offsets_of(chunks: list[dict[str, Any]]) -> list[int]:
    return [
        offset
        for chunk in chunks
        for choice in chunk["choices"]
        for offset in choice["logprobs"]["text_offset"]
    ]


@pytest.mark.parametrize("stop", [None, expected_text("HELLO", 20)[13:16]])
async def test_it_goes_on_behind_every_token(stop: str | None) -> None:
    async with server() as (client, _):
        body = completion(stop=stop, logprobs=1, return_token_ids=True, echo=True)
        whole = (await client.post(PATH, json=body)).json()
        (choice,) = whole["choices"]
        offsets = choice["logprobs"]["text_offset"][5:]
        for count in range(1, len(choice["token_ids"]) + 1):
            again = body | {"resume": {"token_ids": choice["token_ids"][:count]}}
            entire = (await client.post(PATH, json=again)).json()
            assert entire["choices"] == whole["choices"]
            assert entire["usage"] == whole["usage"]
            *chunks, last = await stream(client, PATH, again | COUNTS_USAGE)
            assert ids_of(chunks) == choice["token_ids"][count:]
            assert offsets_of(chunks) == offsets[count:]
            told = expected_text("HELLO", count)
            is_held = stop is not None and 13 < count < 16
            shown = "HELLO" + (told[:13] if is_held else told)
            assert text_of(chunks) == choice["text"][len(shown) :]
            assert chunks[-1]["choices"][0]["finish_reason"] == choice["finish_reason"]
            assert last["usage"] == whole["usage"]
            told_counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
            assert min(told_counts) >= count


async def test_a_chat_says_who_speaks_once_more_and_nothing_else_twice() -> None:
    async with server() as (client, _):
        body = completion(return_token_ids=True, resume={"token_ids": IDS[:7]})
        body["messages"] = [{"role": "user", "content": body.pop("prompt")}]
        first, *chunks = await stream(client, "/v1/chat/completions", body)
        assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        shown = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
        assert "".join(shown) == TEXT.decode(IDS[7:])


async def test_the_echo_is_told_once() -> None:
    async with server() as (client, _):
        body = completion(return_token_ids=True, echo=True)
        first = await stream(client, PATH, body)
        assert text_of(first) == "HELLO" + TEXT.decode(IDS)
        again = await stream(client, PATH, body | {"resume": {"token_ids": IDS[:7]}})
        assert text_of(again) == TEXT.decode(IDS[7:])


async def test_every_choice_has_its_own() -> None:
    async with server() as (client, _):
        resume = {"token_ids": [IDS[:3], [], IDS], "seed": 5}
        body = completion(n=3, return_token_ids=True, resume=resume)
        chunks = await stream(client, PATH, body)
        assert [ids_of(chunks, index) for index in range(3)] == [IDS[3:], IDS, []]
        whole = (await client.post(PATH, json=body)).json()
        assert [choice["token_ids"] for choice in whole["choices"]] == [IDS] * 3
        assert whole["usage"]["completion_tokens"] == 60
        assert whole["seed"] == 5


def resume(token_ids: Any, **fields: Any) -> dict[str, Any]:
    return completion(resume={"token_ids": token_ids, **fields})


WRONG = (IDS[4] + 1) % VOCAB_SIZE
NO_IDS = "resume.token_ids must be a list of token ids"
REFUSALS: list[tuple[dict[str, Any], int, str]] = [
    (
        resume([*IDS[:4], WRONG, *IDS[5:8]]),
        400,
        f"token id {WRONG} at position 4 is not this request's: its answer has {IDS[4]} there",
    ),
    (resume("HELLO"), 400, NO_IDS),
    (resume({}), 400, NO_IDS),
    (resume([1, "2"]), 400, NO_IDS),
    (resume([1, 2.5]), 400, NO_IDS),
    (resume([True]), 400, NO_IDS),
    (resume([[1], 2]), 400, NO_IDS),
    (resume([[1], [2]]), 400, "has 2 lists, the request has 1 choices"),
    (resume([50]), 400, "token id 50 is not in 0..49"),
    (resume([-1]), 400, "token id -1"),
    (resume([1] * 21), 400, "resume has 21 token ids, max_tokens is 20"),
    (resume([1] * 400) | {"max_tokens": 600}, 400, "context length is 512"),
    (resume([1]) | {"temperature": 0.5}, 400, "resume.seed is missing: at temperature 0.5"),
    (resume([1], seed=2) | {"seed": 1}, 400, "resume.seed=2 and seed=1 differ"),
    (resume([1, 2, 3]) | {"stop_token_ids": [2]}, 400, "id 2 at position 1 ends the answer"),
    (resume([1], seed="x"), 400, "resume.seed"),
    (completion(resume={}), 400, "resume.token_ids"),
    (resume([1], system_fingerprint="another"), 409, "resume.system_fingerprint is 'another'"),
]


async def refused(client: httpx.AsyncClient, body: dict[str, Any]) -> tuple[int, str]:
    answer = await client.post(PATH, json=body)
    if answer.status_code == 200:  # a stream, whose ids were compared after its headers had left
        event, end = answer.text.removesuffix("\n\n").split("\n\n")
        assert end == "data: [DONE]"
        error = json.loads(event.removeprefix("data: "))["error"]
        assert error["type"] == "invalid_request_error"
        return 400, error["message"]
    return answer.status_code, answer.json()["error"]["message"]


def nothing_is_left(parts: Cell) -> bool:
    return parts.driver.scheduler.num_live == 0


@pytest.mark.parametrize("streams", [False, True])
async def test_what_is_no_beginning_of_the_answer_is_refused(streams: bool) -> None:
    async with server() as (client, parts):
        for body, status, message in REFUSALS:
            found = await refused(client, body | {"stream": streams})
            assert found[0] == status, (body, found)
            assert message in found[1]
            assert nothing_is_left(parts)
        mine = (await client.get("/ready")).json()["system_fingerprint"]
        answer = await client.post(PATH, json=resume(IDS[:9], system_fingerprint=mine))
        assert answer.json()["choices"][0]["text"] == expected_text("HELLO", 20)


async def test_the_coordinator_may_restart_while_the_ids_are_checked() -> None:
    async with server() as (client, parts):
        await parts.kill_coordinator()
        asked = client.post(PATH, json=resume(IDS[:15]) | {"return_token_ids": True})
        await parts.start_coordinator()
        (choice,) = (await asked).json()["choices"]
        assert choice["token_ids"] == IDS
