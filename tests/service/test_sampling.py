"""Ids and log-probabilities are those of plain decoding, by every way in, speculating or not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from deployments.text.tokenizer import TextModel, load_text_model
from deployments.wire.request_codec import logprobs_from_pb
from specdec.v1 import generation_pb2 as pb
from specdec_core.logprobs import TokenLogprobs
from tests.cli.conftest import status_of
from tests.service.conftest import KV_CACHE_TOKENS, Service
from tests.service.test_service import PROMPT, completion, streamed, token_ids

pytestmark = pytest.mark.slow

TOP = 3
NUM_TOKENS = 60
RULES: tuple[dict[str, Any], ...] = (
    {
        "temperature": 0.0,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.3,
        "repetition_penalty": 1.3,
        "logit_bias": {"40": 4.0, "41": -100.0},
        "min_tokens": 20,
    },
    {
        "temperature": 0.9,
        "top_p": 0.95,
        "seed": 7,
        "bad_words": ["a", "the", "日"],
        "allowed_token_ids": [0, 2, *range(30, 310)],
        "min_tokens": 40,
        "frequency_penalty": -0.4,
    },
    {"temperature": 1.2, "top_k": 40, "min_p": 0.01, "seed": 2**61, "presence_penalty": -1.0},
)


class Answer(NamedTuple):
    """Everything that must be equal, value by value."""

    token_ids: list[int]
    logprobs: list[TokenLogprobs]


@pytest.fixture(scope="module")
def text(service: Service) -> TextModel:
    return load_text_model(str(service.folder))


@pytest.fixture(scope="module")
def plain(service: Service, tmp_path_factory: pytest.TempPathFactory) -> list[Answer]:
    """By `specdec generate`, one request at a time and one token per pass."""
    folder = tmp_path_factory.mktemp("plain")
    return _generate(service, folder, "--algorithm", "autoregressive", "--batch-size", "1")


def _generate(service: Service, folder: Path, *flags: str) -> list[Answer]:
    lines = [{"prompt_token_ids": PROMPT, **rules} for rules in RULES]
    source, output = folder / "input.jsonl", folder / "output.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    files = [service.folder, "--input", source, "--output", output]
    limits = ["--max-tokens", NUM_TOKENS, "--kv-cache-tokens", KV_CACHE_TOKENS]
    numerics = ["--dtype", "bfloat16", "--numerics", "exact", "--logprobs", TOP]
    assert status_of("generate", *files, *limits, *numerics, *flags) == 0
    records = [json.loads(line) for line in output.read_text().splitlines()]
    return [Answer(record["output_token_ids"], _by_ids(record["logprobs"])) for record in records]


def _by_ids(entries: list[dict[str, Any]]) -> list[TokenLogprobs]:
    return [
        TokenLogprobs(
            entry["logprob"],
            tuple((other["token_id"], other["logprob"]) for other in entry["top_logprobs"]),
        )
        for entry in entries
    ]


def body(rules: dict[str, Any], *, speculate: bool) -> dict[str, Any]:
    fields = {"max_tokens": NUM_TOKENS, "ignore_eos": False, "logprobs": TOP}
    return completion(**(fields | rules), speculative={"enabled": speculate})


def message(rules: dict[str, Any], *, speculate: bool) -> pb.GenerateRequest:
    bias = {int(token_id): value for token_id, value in rules.get("logit_bias", {}).items()}
    fields = rules | {"logit_bias": bias, "max_tokens": NUM_TOKENS, "logprobs": TOP}
    return pb.GenerateRequest(
        prompt_token_ids=pb.TokenIds(ids=PROMPT),
        sampling=pb.SamplingParams(**fields),
        speculative=pb.Speculative(enabled=speculate),
    )


def grpc_answers(stub: Any, rules: dict[str, Any], *, speculate: bool) -> Iterator[Answer]:
    asked = message(rules, speculate=speculate)
    for parts in ([stub.GenerateOnce(asked)], list(stub.Generate(asked))):
        entries = [entry for part in parts for entry in logprobs_from_pb(part.logprobs)]
        yield Answer([i for part in parts for i in part.token_ids], entries)


def shown(text: TextModel, answer: Answer) -> dict[str, Any]:
    """The answer as the completions route words it, but for the offsets."""

    def name(token_id: int) -> str:
        content = text.token_bytes(token_id)
        try:
            return content.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in content)

    return {
        "tokens": [name(token_id) for token_id in answer.token_ids],
        "token_logprobs": [entry.logprob for entry in answer.logprobs],
        "top_logprobs": [
            {name(i): logprob for i, logprob in (*entry.top, (token_id, entry.logprob))}
            for token_id, entry in zip(answer.token_ids, answer.logprobs, strict=True)
        ],
    }


def test_generate_speculates_to_the_same_values(
    service: Service, plain: list[Answer], tmp_path: Path
) -> None:
    assert _generate(service, tmp_path, "--spec-tokens", "5") == plain
    for answer in plain:
        assert len(answer.logprobs) == len(answer.token_ids)
        assert {len(entry.top) for entry in answer.logprobs} == {TOP}


@pytest.mark.parametrize("speculate", [True, False])
def test_http_and_grpc_give_the_values_of_generate(
    service: Service,
    http: httpx.Client,
    stub: Any,
    text: TextModel,
    plain: list[Answer],
    speculate: bool,
) -> None:
    service.until_complete()
    for rules, expected in zip(RULES, plain, strict=True):
        for answer in grpc_answers(stub, rules, speculate=speculate):
            assert answer == expected
        asked = body(rules, speculate=speculate)
        whole = http.post("/v1/completions", json=asked)
        assert token_ids(whole) == expected.token_ids
        chunks = [chunk["choices"][0] for chunk in streamed(http, asked)]
        assert [i for chunk in chunks for i in chunk["token_ids"]] == expected.token_ids
        for name, values in shown(text, expected).items():
            assert whole.json()["choices"][0]["logprobs"][name] == values
            assert [x for chunk in chunks for x in chunk["logprobs"][name]] == values
        drafted = whole.json()["metrics"]["speculative_decoding"]["num_draft_tokens"]
        assert bool(drafted) is speculate


def test_a_chat_reports_the_same_values(http: httpx.Client, text: TextModel) -> None:
    rules = RULES[1] | {"max_tokens": 30, "min_tokens": 10}
    asked = rules | {"logprobs": True, "top_logprobs": TOP}
    asked |= {"messages": [{"role": "user", "content": "Größe?"}], "return_token_ids": True}
    answers = []
    for speculate in (True, False):
        chat = http.post(
            "/v1/chat/completions", json=asked | {"speculative": {"enabled": speculate}}
        )
        answers.append(chat.json()["choices"][0])
    on, off = answers
    assert on == off
    content = on["logprobs"]["content"]
    assert [bytes(entry["bytes"]) for entry in content] == [
        text.token_bytes(token_id) for token_id in on["token_ids"]
    ]
    same = {"prompt": on["prompt_token_ids"], **rules, "logprobs": TOP}
    lists = http.post("/v1/completions", json=same).json()["choices"][0]["logprobs"]
    assert [entry["logprob"] for entry in content] == lists["token_logprobs"]
    assert [entry["token"] for entry in content] == lists["tokens"]


def test_the_rules_were_followed(text: TextModel, plain: list[Answer]) -> None:
    penalised, banned, _ = plain
    assert 41 not in penalised.token_ids
    assert len(penalised.token_ids) >= 20
    assert len(banned.token_ids) >= 40
    assert set(banned.token_ids) <= set(RULES[1]["allowed_token_ids"])
    words = [text.encode_part(word) for word in ("a", " a", "the", " the", "日", " 日")]
    ids = banned.token_ids
    for word in words:
        assert all(tuple(ids[i : i + len(word)]) != word for i in range(len(ids)))


def test_the_seed_that_was_drawn_gives_the_answer_again(http: httpx.Client, stub: Any) -> None:
    asked = completion(temperature=1.3, max_tokens=24)
    first, other = (http.post("/v1/completions", json=asked).json() for _ in range(2))
    assert first["seed"] != other["seed"]
    again = http.post("/v1/completions", json=asked | {"seed": first["seed"]})
    assert token_ids(again) == first["choices"][0]["token_ids"]
    sampling = pb.SamplingParams(
        temperature=1.3, max_tokens=24, ignore_eos=True, seed=other["seed"]
    )
    request = pb.GenerateRequest(prompt_token_ids=pb.TokenIds(ids=PROMPT), sampling=sampling)
    answer = stub.GenerateOnce(request)
    assert list(answer.token_ids) == other["choices"][0]["token_ids"]
    assert answer.seed == other["seed"]


def test_structured_output_is_the_same_by_every_way_in(http: httpx.Client, stub: Any) -> None:
    """Drafted or not, whole or streamed, over HTTP or gRPC; several choices among others."""
    pytest.importorskip("llguidance")
    pattern = r"(the )?(quick|lazy) (brown )*fox: [0-9]{2,4}( jumps over){1,3}\."
    rules = {"temperature": 0.8, "seed": 11, "max_tokens": 120}
    fields = rules | {"structured_outputs": {"regex": pattern}, "ignore_eos": False}
    answers = []
    for speculate in (True, False):
        asked = completion(**fields, speculative={"enabled": speculate})
        whole = http.post("/v1/completions", json=asked | {"n": 3}).json()["choices"]
        for choice in whole:
            assert choice["finish_reason"] == "stop"
            assert re.fullmatch(pattern, choice["text"])
        chunks = [c["choices"][0] for c in streamed(http, asked) if c["choices"]]
        message = pb.GenerateRequest(
            prompt_token_ids=pb.TokenIds(ids=PROMPT),
            sampling=pb.SamplingParams(
                **rules, structured_output=pb.StructuredOutput(regex=pattern)
            ),
            speculative=pb.Speculative(enabled=speculate),
        )
        answers += [
            [choice["token_ids"] for choice in whole],
            [i for chunk in chunks for i in chunk["token_ids"]],
            list(stub.GenerateOnce(message).token_ids),
        ]
    choices, first, _ = answers[:3]
    assert answers == [choices, first, first] * 2
    assert choices[0] == first


def test_the_audit_agrees(service: Service) -> None:
    service.until_audited()
    status = service.status()
    assert status.audit.num_audited > 0
    assert status.audit.num_diverged == 0


@pytest.mark.parametrize(
    "rules",
    [{"temperature": 0.0}, {"temperature": 0.9, "top_p": 0.95, "repetition_penalty": 1.2}],
)
def test_what_was_broken_off_goes_on_when_it_is_sent_as_a_prompt(
    http: httpx.Client, rules: dict[str, Any]
) -> None:
    """The noise belongs to the position, whether a prompt or an answer has brought it there."""
    rules = rules | {"seed": 7}
    whole = token_ids(http.post("/v1/completions", json=completion(**rules, max_tokens=40)))
    for had in (1, 23):
        prompt = [*PROMPT, *whole[:had]]
        asked = completion(prompt, **rules, max_tokens=40 - had)
        assert token_ids(http.post("/v1/completions", json=asked)) == whole[had:]
