"""The flags that the commands share, and their values as one record."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar, get_type_hints

import torch
import typer

from benchmarks.paper.algorithms import COMPARED
from benchmarks.paper.pair_spec import DEMO, PairSpec, parse_pair
from benchmarks.paper.records import RESULTS
from specdec_core.engine import AlgorithmName
from specdec_core.errors import InvalidRequestError

Value = TypeVar("Value")
Name = TypeVar("Name", bound=StrEnum)

BatchSizes = Annotated[str, typer.Option(help="B, separated by commas.")]
Algorithms = Annotated[str, typer.Option(help="Separated by commas.")]
MaxTokens = Annotated[int, typer.Option(help="Most tokens of an answer.")]
SpecTokens = Annotated[int, typer.Option(help="K, the drafted tokens per sequence and round.")]
Seed = Annotated[int, typer.Option(help="Of everything that is drawn.")]
Output = Annotated[Path, typer.Option(help="Folder of the JSON files.")]

_Pairs = Annotated[
    list[str],
    typer.Option(
        metavar="TARGET,DRAFT",
        help="TARGET: smollm2-135m, a folder, a hub id, random-vicuna, random-qwen3, random-glm4. "
        "DRAFT: ngram, self-N (the target without N layers), recorded-P (right with probability "
        "P), a folder or hub id. May be given several times.",
    ),
]
_Input = Annotated[Path, typer.Option(help="Prompts, as for `specdec generate`; first turns, raw.")]
_Sample = Annotated[int, typer.Option(help="Prompts, spread evenly over the categories.")]
_MaxPromptLen = Annotated[int, typer.Option(help="Longer prompts keep their last tokens.")]
_Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
_Threads = Annotated[int, typer.Option(help="Torch threads; 0 takes all cores.")]
_Repeats = Annotated[int, typer.Option(help="Turns that are measured; medians are reported.")]
_BudgetS = Annotated[float, typer.Option(help="Seconds after which no further cell is begun.")]
_Scale = Annotated[int, typer.Option(help="Divides the shapes of random targets; 1: real size.")]

_SHARED: dict[str, tuple[Any, Any]] = {
    "pair": (_Pairs, [f"{DEMO},ngram", f"{DEMO},recorded-0.7"]),
    "input": (_Input, Path("examples/prompts.jsonl")),
    "sample": (_Sample, 8),
    "max_tokens": (MaxTokens, 32),
    "max_prompt_len": (_MaxPromptLen, 512),
    "spec_tokens": (SpecTokens, 5),
    "batch_sizes": (BatchSizes, "1,2,4,8,16"),
    "algorithms": (Algorithms, ",".join(COMPARED)),
    "device": (_Device, "auto"),
    "threads": (_Threads, 1),
    "repeats": (_Repeats, 3),
    "budget_s": (_BudgetS, 3600.0),
    "scale": (_Scale, 8),
    "seed": (Seed, 0),
    "output": (Output, RESULTS),
}
"""Flag -> its type and its default where a command names no other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The values of the shared flags."""

    pairs: tuple[PairSpec, ...]
    input: Path
    sample: int
    max_tokens: int
    max_prompt_len: int
    spec_tokens: int
    batch_sizes: tuple[int, ...]
    algorithms: tuple[AlgorithmName, ...]
    device: str
    threads: int
    repeats: int
    budget_s: float
    scale: int
    seed: int
    output: Path

    @property
    def settings(self) -> dict[str, Any]:
        """What a reader needs to judge or repeat a run, beside its name."""
        names = ("sample", "max_tokens", "max_prompt_len", "spec_tokens", "repeats", "seed")
        return {"input": self.input.name, **{name: getattr(self, name) for name in names}}


class Fixed(NamedTuple):
    """What a shared flag is in a command that does not offer it."""

    value: Any


def with_run_options(**defaults: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command of a function whose first argument is RunOptions: it gets the shared flags.

    `defaults` are the command's own; one that is Fixed is no flag of the command.
    """
    given = {name: defaults.get(name, default) for name, (_, default) in _SHARED.items()}
    fixed = {name: value.value for name, value in given.items() if isinstance(value, Fixed)}
    shared = {name: value for name, value in given.items() if name not in fixed}

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(function, include_extras=True)
        own = list(inspect.signature(function).parameters.values())[1:]

        @functools.wraps(function)
        def command(**values: Any) -> None:
            chosen = {name: values.pop(name) for name in shared}
            function(_run_options({**fixed, **chosen}), **values)

        kind = inspect.Parameter.KEYWORD_ONLY
        parameters = [
            inspect.Parameter(name, kind, default=default, annotation=_SHARED[name][0])
            for name, default in shared.items()
        ]
        parameters += [p.replace(kind=kind, annotation=hints[p.name]) for p in own]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorate


def _run_options(given: dict[str, Any]) -> RunOptions:
    pairs = given.pop("pair")
    given["batch_sizes"] = numbers(given["batch_sizes"])
    given["algorithms"] = names(AlgorithmName, given["algorithms"])
    return RunOptions(pairs=_checked(lambda: tuple(parse_pair(text) for text in pairs)), **given)


def numbers(text: str) -> tuple[int, ...]:
    """Positive whole numbers, separated by commas."""
    values = _checked(lambda: tuple(int(part) for part in text.split(",")))
    if min(values) < 1:
        raise typer.BadParameter(f"positive numbers are needed, got {text!r}")
    return values


def fractions(text: str) -> tuple[float, ...]:
    return _checked(lambda: tuple(float(part) for part in text.split(",")))


def names(kind: type[Name], text: str) -> tuple[Name, ...]:
    """Members of an enum, separated by commas."""
    return _checked(lambda: tuple(kind(part) for part in text.split(",")))


def use_threads(count: int) -> None:
    torch.set_num_threads(count or os.cpu_count() or 1)


def _checked(build: Callable[[], Value]) -> Value:
    """Turn a caller's mistake into a usage message."""
    try:
        return build()
    except (InvalidRequestError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
