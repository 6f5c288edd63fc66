"""The flags that only `specdec bench` has. Those of `bench serve` are named as in vLLM."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from deployments.cli.bench.names import (
    GOALS,
    GRPC_ADDRESS,
    HTTP_URL,
    METRICS,
    Backend,
    DatasetName,
    Vocabulary,
)
from deployments.cli.verify.flags import positive_numbers
from specdec_core.config import SpecMethod

DEFAULT_VOCAB = "1000-20000"


def _parts(text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise typer.BadParameter("at least one value is needed")
    return list(dict.fromkeys(parts))


def _metrics(text: str) -> tuple[str, ...]:
    for name in _parts(text):
        if name not in METRICS:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(METRICS)}")
    return tuple(_parts(text))


def _percentiles(text: str) -> tuple[float, ...]:
    percentiles = tuple(_number(part) for part in _parts(text))
    for p in percentiles:
        if not 0 <= p <= 100:
            raise typer.BadParameter(f"{p:g} is not in 0..100")
    return percentiles


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a number") from error


def _vocabulary(text: str) -> Vocabulary:
    """Return the range of token IDs in "1000-20000" or "1000..20000"."""
    first, _, last = text.replace("..", "-").partition("-")
    if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last) < 2**31):
        raise typer.BadParameter(f"{text!r} is no range of token ids, as {DEFAULT_VOCAB} is")
    return Vocabulary(int(first), int(last))


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"this is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise typer.BadParameter(f"a JSON object is needed, got {text}")
    return value


def _methods(text: str | None) -> tuple[SpecMethod, ...]:
    known = [method for method in SpecMethod if method is not SpecMethod.NONE]
    names = _parts(text) if text is not None else []
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(known)}")
    return tuple(map(SpecMethod, names))


def _spec_tokens(text: str | None) -> tuple[int, ...]:
    return () if text is None else positive_numbers(text)


def goals_of(named: Sequence[str], more: Sequence[str]) -> dict[str, float]:
    """Return the milliseconds by latency from texts such as `ttft:200`."""
    if more and not named:
        raise typer.BadParameter(f"unexpected argument {more[0]!r}")
    goals = {}
    for goal in (part for text in (*named, *more) for part in text.replace(",", " ").split()):
        name, _, limit = goal.partition(":")
        if name not in GOALS or not re.fullmatch(r"\d+(\.\d+)?", limit):
            known = ", ".join(GOALS)
            raise typer.BadParameter(f"{goal!r} is no goal: NAME:MILLISECONDS, of {known}")
        goals[name] = float(limit)
    return goals


_server = partial(typer.Option, rich_help_panel="Server")
_prompts = partial(typer.Option, rich_help_panel="Prompts")
_traffic = partial(typer.Option, rich_help_panel="Traffic")
_report = partial(typer.Option, rich_help_panel="Report")
_file = partial(_report, dir_okay=False, writable=True)

BackendName = Annotated[
    Backend,
    _server(
        help="openai: /v1/completions; openai-chat: /v1/chat/completions; grpc: a specdec server's "
        "GenerationService."
    ),
]
BaseUrl = Annotated[
    str | None, _server(metavar="URL", help="Of the server.", show_default=HTTP_URL)
]
GrpcAddress = Annotated[
    str | None,
    _server(metavar="HOST:PORT", help="With grpc; or --base-url.", show_default=GRPC_ADDRESS),
]
ServedModel = Annotated[
    str | None, _server(metavar="NAME", help="Model in the requests [the server's first].")
]
ApiKey = Annotated[
    str | None, _server(metavar="KEY", envvar="OPENAI_API_KEY", help="Sent as a bearer token.")
]
ExtraBody = Annotated[
    str,
    _server(
        metavar="JSON",
        callback=_json_object,
        help='More fields of every request, e.g. {"speculative": {"enabled": false}}.',
    ),
]

Dataset = Annotated[
    DatasetName | None,
    _prompts(
        help="Source of the prompts. `spec_bench` takes lines of --dataset-path evenly from its "
        "categories. `custom` takes its first lines. `copying` is a set of chats with text to copy "
        "that ships with specdec. `random` draws token IDs. [default: custom with --dataset-path, "
        "else random]",
        show_default=False,
    ),
]
DatasetPath = Annotated[
    Path | None,
    _prompts(
        exists=True, dir_okay=False, readable=True, help="JSON lines, as of `specdec generate`."
    ),
]
NumPrompts = Annotated[
    int | None, _prompts(min=1, help="Requests [every line of the data set; 100 random ones].")
]
InputLen = Annotated[
    int,
    _prompts(
        "--random-input-len",
        "--input-len",
        min=1,
        help="Tokens of a random prompt; words in a chat.",
    ),
]
RandomVocab = Annotated[
    str,
    _prompts(
        metavar="FIRST-LAST",
        callback=_vocabulary,
        help="Ids that random prompts are drawn from: all of them must be in the vocabulary.",
    ),
]
RawPrompt = Annotated[
    bool, _prompts("--raw-prompt", help="With grpc: leave the chat template out.")
]
MaxTokens = Annotated[
    int,
    typer.Option(
        "--max-tokens",
        "--random-output-len",
        "--output-len",
        min=1,
        help="Most tokens of one answer; a line of the file may name its own.",
        rich_help_panel="Sampling",
    ),
]
TopP = Annotated[
    float | None,
    typer.Option(help="[as the server has it]", rich_help_panel="Sampling"),
]
IgnoreEos = Annotated[
    bool,
    typer.Option(
        "--ignore-eos",
        help="Go on behind the model's end ids; always with random prompts.",
        rich_help_panel="Sampling",
    ),
]

RequestRate = Annotated[float, _traffic(help="Requests per second; inf sends all at once.")]
Burstiness = Annotated[
    float,
    _traffic(help="1: a Poisson process; below: in bursts; above: evenly (gamma-distributed)."),
]
MaxConcurrency = Annotated[int | None, _traffic(min=1, help="Most requests under way [no limit].")]
NumWarmups = Annotated[int, _traffic(min=0, help="Requests before that are not measured.")]
Repeat = Annotated[int, _traffic(min=1, help="Runs; the medians over them are told, and each.")]
RequestTimeout = Annotated[float, _traffic(metavar="SECONDS", help="Longest of one request.")]
Seed = Annotated[int, _traffic(help="Of random prompts and of arrivals. It is not sent.")]

PercentileMetrics = Annotated[str, _report(callback=_metrics, help="Latencies that are told.")]
MetricPercentiles = Annotated[str, _report(callback=_percentiles, help="Of these latencies.")]
Goodput = Annotated[
    list[str] | None,
    _report(
        metavar="NAME:MS ...",
        help="What a good request keeps, e.g. ttft:200 tpot:50 (ttft, tpot, e2el).",
    ),
]
MoreGoals = Annotated[list[str] | None, typer.Argument(hidden=True)]
SaveResult = Annotated[
    Path | None, _file(metavar="FILE.json", help="Everything, under vLLM's names.")
]
SaveDetailed = Annotated[bool, _report("--save-detailed", help="The times of every request too.")]
SpreadPlot = Annotated[
    Path | None, _file(metavar="FILE.png", help="Latencies and throughput as a picture.")
]

SpecMethods = Annotated[
    str | None,
    typer.Option(
        "--spec-methods",
        "--spec-method",
        callback=_methods,
        help="Who drafts: ngram, draft_model, hybrid [the draft model where there is one, else "
        "ngram].",
        rich_help_panel="Cells",
    ),
]
SpecTokens = Annotated[
    str | None,
    typer.Option(
        callback=_spec_tokens,
        metavar="K,...",
        help="Maximum drafted tokens per sequence and round, a cell for each. Default: the one of "
        "`specdec generate`.",
        rich_help_panel="Cells",
    ),
]
OfflineRepeat = Annotated[
    int, _report(min=1, help="Runs of every cell, in turns; the medians over them are told.")
]
SaveCells = Annotated[Path | None, _file(metavar="FILE.json", help="Every cell and run, as JSON.")]
CellsPlot = Annotated[Path | None, _file(metavar="FILE.png", help="Tokens per second by cell.")]
