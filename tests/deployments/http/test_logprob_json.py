"""OpenAI's shapes where they are least obvious: halves of characters, tokens that read alike."""

from __future__ import annotations

import json
import math

from deployments.api.http.logprob_json import chat_logprobs, completion_logprobs, logprob_records
from deployments.ingress.output import OutputChunk
from specdec_core.logprobs import TokenLogprobs

TOKENS = {0: b"a", 1: "é".encode(), 2: b"\xf0\x9f", 3: b"a", 4: b"\x99"}


def piece(token_id: int, logprob: float, *top: tuple[int, float]) -> OutputChunk:
    reported = (TokenLogprobs(logprob, top),)
    return OutputChunk(
        index=4, token_ids=(token_id,), text="", text_offsets=(9,), logprobs=reported
    )


def test_a_token_that_is_not_among_the_most_probable_comes_on_top() -> None:
    told = completion_logprobs(piece(1, -3.0, (0, -0.5), (2, -1.5)), TOKENS.__getitem__)
    assert told == {
        "text_offset": [9],
        "token_logprobs": [-3.0],
        "tokens": ["é"],
        "top_logprobs": [{"a": -0.5, "bytes:\\xf0\\x9f": -1.5, "é": -3.0}],
    }
    assert list(told["top_logprobs"][0]) == ["a", "bytes:\\xf0\\x9f", "é"]


def test_of_tokens_that_read_alike_the_most_probable_is_named() -> None:
    told = completion_logprobs(piece(3, -3.0, (0, -0.5), (3, -3.0)), TOKENS.__getitem__)
    assert told["top_logprobs"] == [{"a": -0.5}]
    assert told["token_logprobs"] == [-3.0]


def test_a_chat_names_bytes_and_only_what_was_asked_for() -> None:
    told = chat_logprobs(piece(4, -3.0, (1, -0.5)), TOKENS.__getitem__)
    entry = {"token": "bytes:\\x99", "logprob": -3.0, "bytes": [0x99]}
    top = {"token": "é", "logprob": -0.5, "bytes": [0xC3, 0xA9]}
    assert told == {"content": [entry | {"top_logprobs": [top]}], "refusal": None}


def test_minus_infinity_has_a_number_in_json() -> None:
    part = piece(0, -0.0, (0, 0.0), (1, -math.inf))
    records = logprob_records(part.token_ids, part.logprobs)
    for told in (
        records,
        chat_logprobs(part, TOKENS.__getitem__),
        completion_logprobs(part, TOKENS.__getitem__),
    ):
        assert "-9999.0" in json.dumps(told, allow_nan=False)
    assert records == [
        {
            "token_id": 0,
            "logprob": 0.0,
            "top_logprobs": [{"token_id": 0, "logprob": 0.0}, {"token_id": 1, "logprob": -9999.0}],
        }
    ]
