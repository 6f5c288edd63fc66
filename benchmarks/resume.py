"""Answers of a service that are taken up again behind every one of their tokens.

Each answer is streamed once without speculation, so that what a client has after each token is
known, and then resumed behind every token, with speculation: text, ids, log-probabilities, finish
reason and usage of both connections together must be those of the first.

    python -m benchmarks.resume --input prompts.jsonl --output resume.json
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console

from benchmarks.harness.client import connect, events, whole
from benchmarks.harness.commands import write_json
from benchmarks.harness.starting import service
from deployments.cli.generate.prompt_file import read_prompt_file
from deployments.cli.generate.prompt_text import first_messages
from deployments.config.service import ServiceConfig
from deployments.demo.models import resolve_model
from specdec_core.config import Numerics

_PATH = "/v1/chat/completions"
_DEMO = "smollm2-135m"
_SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string", "maxLength": 60}, "sure": {"type": "boolean"}},
    "required": ["answer", "sure"],
    "additionalProperties": False,
}
_KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "sampled": {"temperature": 0.8},
    "stop strings": {"temperature": 0.8, "stop": ["\n\n", " is ", "1."]},
    "logprobs": {"temperature": 0.8, "logprobs": True, "top_logprobs": 2},
    "grammar": {
        "temperature": 0.8,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": _SCHEMA},
        },
    },
}
_WHOLE_EVERY = 4
"""Of the places, one in so many is resumed without a stream as well."""


@dataclass
class Told:
    """What the chunks of one answer have told."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    reason: str | None = None
    usage: dict[str, int] = field(default_factory=dict)
    seed: int = 0
    text_at: dict[int, str] = field(default_factory=dict)
    """After so many tokens."""

    def take(self, chunk: dict[str, Any]) -> None:
        self.seed = chunk["seed"]
        if chunk.get("usage"):
            self.usage = {k: v for k, v in chunk["usage"].items() if k.endswith("_tokens")}
        for choice in chunk["choices"]:
            self.text += choice["delta"].get("content", "")
            self.token_ids += choice.get("token_ids", [])
            self.logprobs += (choice["logprobs"] or {}).get("content", [])
            self.reason = choice["finish_reason"] or self.reason
            self.text_at[len(self.token_ids)] = self.text

    def from_place(self, count: int) -> tuple[object, ...]:
        """What a resumed stream has to tell."""
        rest = self.text[len(self.text_at[count]) :]
        return rest, self.token_ids[count:], self.logprobs[count:], self.reason, self.usage

    @property
    def whole(self) -> tuple[object, ...]:
        return self.text, self.token_ids, self.logprobs, self.reason, self.usage


def main(
    input: Annotated[Path, typer.Option(help="Prompts, as of `specdec generate`.")],
    output: Annotated[Path | None, typer.Option(help="Write the result as JSON.")] = None,
    answers: Annotated[int, typer.Option(help="Number of answers.")] = 100,
    max_tokens: Annotated[int, typer.Option(help="Maximum tokens of an answer.")] = 32,
    model: str = _DEMO,
    concurrency: int = 8,
    port: int = 8124,
) -> None:
    """Start a service, resume every answer everywhere; exit status 1 on any difference."""
    config = ServiceConfig.of(
        model=str(resolve_model(model)),
        numerics=Numerics.EXACT,
        max_num_seqs=concurrency,
        torch_threads=1,
        port=port,
        grpc_port=port + 1000,
    )
    lines = read_prompt_file(input)
    bodies = [
        {
            "messages": list(first_messages(lines[number % len(lines)])),
            "max_tokens": max_tokens,
            **list(_KINDS.values())[number % len(_KINDS)],
        }
        for number in range(answers)
    ]
    with service(config):
        began_s = time.monotonic()
        found = asyncio.run(_resume_all(f"http://127.0.0.1:{port}", bodies, concurrency))
    names = list(_KINDS)
    report = {
        "answers": Counter(names[number % len(names)] for number in range(answers)),
        "resumed": sum(count for count, _ in found),
        "different": sum(wrong for _, wrong in found),
        "seconds": round(time.monotonic() - began_s, 1),
    }
    Console().print(report)
    write_json(report, output)
    raise typer.Exit(int(report["different"] > 0))


async def _resume_all(
    url: str, bodies: Sequence[dict[str, Any]], concurrency: int
) -> list[tuple[int, int]]:
    seats = asyncio.Semaphore(concurrency)
    async with connect(url) as http:
        return await asyncio.gather(*[_resume_everywhere(http, body, seats) for body in bodies])


async def _resume_everywhere(
    http: httpx.AsyncClient, body: dict[str, Any], seats: asyncio.Semaphore
) -> tuple[int, int]:
    """How often the answer was resumed, and how often that made a difference."""
    async with seats:
        first = await _streamed(http, body | {"speculative": {"enabled": False}})
        num_wrong = 0
        places = [count for count in sorted(first.text_at) if count]
        for number, count in enumerate(places):
            resume = {"token_ids": first.token_ids[:count], "seed": first.seed}
            rest = await _streamed(http, body | {"resume": resume})
            is_equal = rest.whole == first.from_place(count)
            if number % _WHOLE_EVERY == 0:
                is_equal &= (await _whole(http, body | {"resume": resume})) == first.whole
            num_wrong += not is_equal
    return len(places), num_wrong


async def _streamed(http: httpx.AsyncClient, body: dict[str, Any]) -> Told:
    told = Told()
    asked = body | {
        "stream": True,
        "return_token_ids": True,
        "stream_options": {"include_usage": True},
    }
    async for chunk in events(http, _PATH, asked):
        told.take(chunk)
    return told


async def _whole(http: httpx.AsyncClient, body: dict[str, Any]) -> tuple[object, ...]:
    found = await whole(http, _PATH, body | {"return_token_ids": True})
    (choice,) = found["choices"]
    told = Told()
    told.take(found | {"choices": [choice | {"delta": {"content": choice["message"]["content"]}}]})
    return told.whole


if __name__ == "__main__":
    typer.run(main)
