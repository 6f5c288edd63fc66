"""What counts as an answer, a refusal and a broken promise."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import grpc
import pytest
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2

from benchmarks.overload.asking import judged, judged_error
from benchmarks.overload.http_exchange import Answer, CutOffError, parse
from benchmarks.overload.questions import Outcome, Question, Verdict, Way, mixture, prompts
from benchmarks.overload.verdicts import judge

CODE = grpc.StatusCode


def question(way: Way = Way.HTTP) -> Question:
    return Question(way=way, prompt=(1, 2), max_tokens=3)


def answer(status: int, body: Any, **headers: str) -> Answer:
    text = body if isinstance(body, str) else json.dumps(body)
    return Answer(
        status, {name.replace("_", "-"): value for name, value in headers.items()}, text.encode()
    )


def chunk(*ids: int) -> str:
    return "data: " + json.dumps({"choices": [{"token_ids": list(ids)}]}) + "\n\n"


@pytest.mark.parametrize(
    ("status", "headers", "verdict"),
    [
        (429, {"retry_after": "2"}, Verdict.REFUSED),
        (429, {}, Verdict.FAILED),
        (503, {"retry_after": "2"}, Verdict.FAILED),
        (500, {}, Verdict.FAILED),
    ],
)
def test_only_429_with_a_hint_is_a_refusal(
    status: int, headers: dict[str, str], verdict: Verdict
) -> None:
    assert judged(question(), answer(status, {}, **headers)).verdict is verdict


def test_ids_are_read_from_whole_and_streamed_answers() -> None:
    whole = answer(200, {"choices": [{"token_ids": [4, 5]}]})
    assert judged(question(), whole).token_ids == (4, 5)
    stream = answer(200, chunk(4) + chunk() + chunk(5) + "data: [DONE]\n\n")
    assert judged(question(Way.HTTP_STREAM), stream).token_ids == (4, 5)


@pytest.mark.parametrize(
    "text", [chunk(4), chunk(4) + 'data: {"error": {"message": "x"}}\n\ndata: [DONE]\n\n']
)
def test_a_stream_that_breaks_off_or_tells_an_error_is_no_answer(text: str) -> None:
    with pytest.raises(ValueError, match=r"ends with|message"):
        judged(question(Way.HTTP_STREAM), answer(200, text))


def rpc_error(code: grpc.StatusCode, hint_s: int | None) -> grpc.aio.AioRpcError:
    trailers = grpc.aio.Metadata()
    if hint_s is not None:
        info = error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=hint_s))
        detail = any_pb2.Any()
        detail.Pack(info)
        packed = status_pb2.Status(details=[detail]).SerializeToString()
        trailers = grpc.aio.Metadata(("grpc-status-details-bin", packed))
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailers, "why")


@pytest.mark.parametrize(
    ("code", "hint_s", "verdict"),
    [
        (CODE.RESOURCE_EXHAUSTED, 2, Verdict.REFUSED),
        (CODE.RESOURCE_EXHAUSTED, None, Verdict.FAILED),
        (CODE.CANCELLED, 2, Verdict.FAILED),
        (CODE.UNAVAILABLE, None, Verdict.FAILED),
    ],
)
def test_only_resource_exhausted_with_a_hint_is_a_refusal(
    code: grpc.StatusCode, hint_s: int | None, verdict: Verdict
) -> None:
    outcome = judged_error(question(Way.GRPC), rpc_error(code, hint_s))
    assert outcome.verdict is verdict
    assert outcome.retry_after_s == (2.0 if verdict is Verdict.REFUSED else None)


HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_chunks_are_joined_and_a_missing_end_is_noticed() -> None:
    whole = HEAD + b"2\r\nab\r\nA\r\n0123456789\r\n0\r\n\r\n"
    assert parse(whole).body == b"ab0123456789"
    for cut in range(1, len(whole) - 4):
        with pytest.raises(CutOffError):
            parse(whole[:cut])


def test_a_short_body_is_noticed() -> None:
    whole = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nabcde"
    assert parse(whole) == Answer(200, {"content-length": "5"}, b"abcde")
    with pytest.raises(CutOffError, match="4 of 5 bytes"):
        parse(whole[:-1])


def outcome(verdict: Verdict, ids: tuple[int, ...] = (), why: str = "") -> Outcome:
    return Outcome(question=question(), verdict=verdict, seconds=1.0, token_ids=ids, why=why)


def test_a_wrong_answer_and_a_failure_break_promises_and_a_refusal_does_not() -> None:
    plain = {(1, 2): (7, 8, 9, 10)}
    right, refused = outcome(Verdict.ANSWERED, (7, 8, 9)), outcome(Verdict.REFUSED)
    assert judge([right, refused], plain).broken_promises() == []
    wrong = outcome(Verdict.ANSWERED, (7, 8, 8))
    short = outcome(Verdict.ANSWERED, (7, 8))
    assert judge([wrong, right, short], plain).num_wrong == 2
    (broken,) = judge([right, outcome(Verdict.FAILED, why="reset")], plain).broken_promises()
    assert "1 requests ended otherwise than promised: 1 x reset" in broken
    assert judge([refused], plain).broken_promises() == ["no request was answered"]


def test_every_way_and_prompt_is_there_from_the_beginning() -> None:
    asked = mixture(6, 6, prompts(2), max_tokens=3)
    assert Counter(each.way for each in asked) == {Way.HTTP: 3, Way.HTTP_STREAM: 3, Way.GRPC: 6}
    assert {each.way for each in asked[:4]} == set(Way)
    assert Counter(each.prompt for each in asked) == dict.fromkeys(prompts(2), 6)


def test_prompts_begin_differently_and_have_ids_that_every_tokenizer_has() -> None:
    given = prompts(64)
    assert len({prompt[0] for prompt in given}) == 64
    assert max(max(prompt) for prompt in given) < 300
