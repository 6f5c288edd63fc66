"""The flags that only `specdec bench` has. Those of `bench serve` are named as in vLLM."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from deployments.cli.bench.names import Backend, DatasetName
from deployments.cli.verify.flags import positive_numbers
from specdec_core.speculation.registry import drafting_methods


def _parts(text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise typer.BadParameter("at least one value is needed")
    return list(dict.fromkeys(parts))


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"this is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise typer.BadParameter(f"a JSON object is needed, got {text}")
    return value


def _methods(text: str | None) -> tuple[str, ...]:
    known = drafting_methods()
    names = _parts(text) if text is not None else []
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(known)}")
    return tuple(names)


def _spec_tokens(text: str | None) -> tuple[int, ...]:
    return () if text is None else positive_numbers(text)


_server = partial(typer.Option, rich_help_panel="Server")
_prompts = partial(typer.Option, rich_help_panel="Prompts")
_traffic = partial(typer.Option, rich_help_panel="Traffic")
_report = partial(typer.Option, rich_help_panel="Report")
_file = partial(_report, dir_okay=False, writable=True)

BackendName = Annotated[
    Backend, _server(help="openai: /v1/completions; openai-chat: /v1/chat/completions.")
]
BaseUrl = Annotated[str, _server(metavar="URL", help="Address of the server.")]
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
        "that ships with specdec. `random` draws common words. [default: custom with "
        "--dataset-path, else random]",
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
    _prompts("--random-input-len", "--input-len", min=1, help="Words of a random prompt."),
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
IgnoreEos = Annotated[
    bool,
    typer.Option(
        "--ignore-eos",
        help="Continue after the model's end token. Random prompts always do.",
        rich_help_panel="Sampling",
    ),
]

RequestRate = Annotated[float, _traffic(help="Requests per second; inf sends all at once.")]
MaxConcurrency = Annotated[int | None, _traffic(min=1, help="Most requests under way [no limit].")]
NumWarmups = Annotated[int, _traffic(min=0, help="Requests before that are not measured.")]
Repeat = Annotated[int, _traffic(min=1, help="Runs; the medians over them are told, and each.")]
Seed = Annotated[int, _traffic(help="Of random prompts and of arrivals. It is not sent.")]

SaveResult = Annotated[
    Path | None, _file(metavar="FILE.json", help="Everything, under vLLM's names.")
]

SpecMethods = Annotated[
    str | None,
    typer.Option(
        "--spec-methods",
        "--spec-method",
        callback=_methods,
        help=f"Who drafts: {', '.join(drafting_methods())} [the draft model where there is one, "
        "else ngram].",
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
