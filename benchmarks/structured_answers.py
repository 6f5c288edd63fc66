"""Thousands of structured answers of twenty grammars from one service: none is refused, and the
target's memory stays as it is.

The service has a small KV cache. Prompts first use each of its blocks, and each grammar answers a
few times; then memory is compared with that after the last answer.

    python -m benchmarks.structured_answers --answers 10000 --output structured_answers.json
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import httpx
import psutil
import typer
from rich.console import Console

from benchmarks.harness.client import connect
from benchmarks.harness.commands import write_json
from benchmarks.harness.processes import MIB, Kind, pids_by_kind
from benchmarks.harness.starting import service
from deployments.cli.progress import stage_progress
from deployments.config.service import ServiceConfig
from deployments.demo.models import resolve_model

GROWTH_LIMIT = 0.02
"""Share of the target's resident memory that may be added."""
_FILL_TOKENS = 400
"""Length of a prompt that only fills KV blocks."""
_WARM_UP = 5
"""Answers of each grammar before memory is measured."""

_ROW = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 30},
        "amount": {"type": "integer", "minimum": 0, "maximum": 9999},
        "unit": {"enum": ["kg", "l", "piece"]},
    },
    "required": ["name", "amount", "unit"],
    "additionalProperties": False,
}


def _schema(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    }


def _structured(**fields: Any) -> dict[str, Any]:
    return {"structured_outputs": fields}


GRAMMARS: tuple[dict[str, Any], ...] = (
    _structured(regex=r"((.|\n){0,300}\n\n){1,20}"),
    _structured(regex=r"(.*a.{14}b.*)|(.*c.{13}d.*)"),
    _structured(regex=r"([A-Z][a-z]{1,11}[ ,.]){3,40}"),
    _structured(regex=r"[0-9]{4}-[01][0-9]-[0-3][0-9]"),
    _structured(regex=r"(.|\n)*"),
    _structured(choice=["yes", "no", "perhaps", "I do not know"]),
    _structured(choice=[f"label {number}" for number in range(300)]),
    _structured(grammar='start: "(" start* ")" | /[a-z]+/'),
    _structured(grammar='start: term ("+" term)*\nterm: /[0-9]{1,9}/ | "-" term | "(" start ")"'),
    _structured(grammar='start: line+\nline: "- " /[^\\n]{1,60}/ "\\n"'),
    {"response_format": {"type": "json_object"}},
    _schema(_ROW),
    _schema({"type": "array", "items": _ROW, "minItems": 2, "maxItems": 5}),
    _schema({"type": "object", "properties": {"rows": {"type": "array", "items": _ROW}}}),
    _schema({"type": "string", "format": "email"}),
    _schema({"type": "number"}),
    _schema({"type": "object", "additionalProperties": {"type": "integer"}}),
    _schema({"anyOf": [_ROW, {"type": "null"}]}),
    _schema({"type": "string", "pattern": "^(a|b.{3}c)+d$"}),
    _schema(
        {"type": "object", "properties": {f"field {i}": {"type": "string"} for i in range(60)}}
    ),
)


@dataclass
class Found:
    """What the answers were."""

    statuses: Counter[int] = field(default_factory=Counter)
    refusals: list[str] = field(default_factory=list)

    def take(self, answer: httpx.Response) -> None:
        self.statuses[answer.status_code] += 1
        if answer.status_code != 200:
            self.refusals.append(answer.text[:300])


def main(
    answers: Annotated[int, typer.Option(help="Number of answers, of all grammars.")] = 10_000,
    max_tokens: Annotated[int, typer.Option(help="Maximum tokens of an answer.")] = 16,
    output: Annotated[Path | None, typer.Option(help="Write the result as JSON.")] = None,
    model: Annotated[str, typer.Option(help="Folder, hub ID or demo model.")] = "smollm2-135m",
    kv_cache_tokens: Annotated[int, typer.Option(help="The service's setting.")] = 8192,
    concurrency: Annotated[int, typer.Option(help="Requests at a time.")] = 32,
    seed: Annotated[int, typer.Option(help="Seed of the first answer.")] = 1,
    port: Annotated[int, typer.Option(help="HTTP port of the service.")] = 8124,
) -> None:
    """Start a service and ask it; exit status 1 on any refusal, or if the target's memory grows."""
    config = ServiceConfig.of(
        model=str(resolve_model(model)),
        kv_cache_tokens=kv_cache_tokens,
        port=port,
        grpc_port=port + 1000,
    )
    bodies = _bodies(answers, max_tokens, seed)
    with service(config) as process:
        report = asyncio.run(
            _measure(f"http://127.0.0.1:{port}", process.pid, bodies, kv_cache_tokens, concurrency)
        )
    Console().print_json(data=report)
    write_json(report, output)
    raise typer.Exit(int(not report["passed"]))


def _bodies(answers: int, max_tokens: int, seed: int) -> list[dict[str, Any]]:
    return [
        {
            "prompt": f"Item {number % 97}: write an answer.\n",
            "max_tokens": max_tokens,
            "temperature": 1.0,
            "seed": seed + number,
            **GRAMMARS[number % len(GRAMMARS)],
        }
        for number in range(answers)
    ]


async def _measure(
    url: str, pid: int, bodies: Sequence[dict[str, Any]], num_tokens: int, concurrency: int
) -> dict[str, Any]:
    async with connect(url) as http:
        with stage_progress() as tell:
            fill = _fill_bodies(num_tokens)
            await _ask_all(http, fill, concurrency, lambda done: tell("fill", done, len(fill)))
            warm_up, rest = bodies[: _WARM_UP * len(GRAMMARS)], bodies[_WARM_UP * len(GRAMMARS) :]
            found = Found()
            await _ask_all(
                http, warm_up, concurrency, lambda done: tell("warm up", done, len(warm_up)), found
            )
            before_mib = _target_mib(pid)
            began_s = time.monotonic()
            await _ask_all(
                http, rest, concurrency, lambda done: tell("answers", done, len(rest)), found
            )
            seconds = time.monotonic() - began_s
        await asyncio.sleep(3)
    after_mib = _target_mib(pid)
    growth = after_mib / before_mib - 1.0
    return {
        "answers": found.statuses.total(),
        "refused": len(found.refusals),
        "first refusals": found.refusals[:5],
        "seconds": round(seconds, 1),
        "target MiB before": round(before_mib, 1),
        "target MiB after": round(after_mib, 1),
        "growth": round(growth, 4),
        "passed": not found.refusals and growth <= GROWTH_LIMIT,
    }


def _fill_bodies(num_tokens: int) -> list[dict[str, Any]]:
    """Prompts that have no block in common, of more tokens than the cache has."""
    draw = random.Random(0)
    return [
        {
            "prompt": [draw.randrange(1000, 40_000) for _ in range(_FILL_TOKENS)],
            "max_tokens": 2,
            "ignore_eos": True,
        }
        for _ in range(2 * num_tokens // _FILL_TOKENS)
    ]


async def _ask_all(
    http: httpx.AsyncClient,
    bodies: Sequence[dict[str, Any]],
    concurrency: int,
    tell: Callable[[int], None],
    found: Found | None = None,
) -> None:
    slots = asyncio.Semaphore(concurrency)
    num_done = 0

    async def ask(body: dict[str, Any]) -> None:
        nonlocal num_done
        async with slots:
            answer = await http.post("/v1/completions", json=body)
            if found is None:
                answer.raise_for_status()
            else:
                found.take(answer)
            num_done += 1
            tell(num_done)

    await asyncio.gather(*map(ask, bodies))


def _target_mib(pid: int) -> float:
    """Resident memory of the only target."""
    (target,) = pids_by_kind(pid)[Kind.TARGET]
    return psutil.Process(target).memory_info().rss / MIB


if __name__ == "__main__":
    typer.run(main)
