"""The flags of the commands, each declared on the record that the command takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import typer

from benchmarks.harness.commands import fractions
from benchmarks.paper.algorithms import COMPARED
from benchmarks.paper.grouping import GroupingOptions
from benchmarks.paper.online import Timer
from benchmarks.paper.pair_spec import DEMO, PairSpec, parse_pair
from benchmarks.paper.records import RESULTS
from benchmarks.paper.report import DOCUMENT
from deployments.config.flags import comma_names, flag, section
from specdec_core.config import Numerics
from specdec_core.engine import AlgorithmName
from specdec_core.errors import InvalidRequestError
from specdec_core.loading.loader import DType


def _positive(text: str) -> tuple[int, ...]:
    values = tuple(map(int, comma_names(text)))
    if not values or min(values) < 1:
        raise ValueError(f"positive numbers are needed, got {text!r}")
    return values


def _members(kind: type[StrEnum]) -> Callable[[str], tuple[Any, ...]]:
    return lambda text: tuple(map(kind, comma_names(text)))


def _checked_pairs(texts: Sequence[str]) -> Sequence[str]:
    try:
        [parse_pair(text) for text in texts]
    except InvalidRequestError as error:
        raise typer.BadParameter(str(error)) from error
    return texts


_batch_sizes = partial(flag, help="B, separated by commas.", parse=_positive)
_algorithms = partial(flag, help="Separated by commas.", parse=_members(AlgorithmName))
_sample = partial(flag, help="Prompts, spread evenly over the categories.")
_WITH_WINDOW = f"{AlgorithmName.EXSPEC_PADDED},{AlgorithmName.EXSPEC}"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The flags that all commands with models share."""

    pair: list[str] = flag(
        (f"{DEMO},ngram", f"{DEMO},recorded-0.7"),
        "TARGET: smollm2-135m, a folder, a hub id, random-vicuna, random-qwen3, random-glm4. "
        "DRAFT: ngram, self-N (the target without N layers), recorded-P (right with probability "
        "P), a folder or hub id. May be given several times.",
        metavar="TARGET,DRAFT",
        callback=_checked_pairs,
    )
    input: Path = flag(
        Path("examples/prompts.jsonl"), "Prompts, as for `specdec generate`; first turns, raw."
    )
    sample: int = _sample(8)
    max_tokens: int = flag(32, "Most tokens of an answer.")
    max_prompt_len: int = flag(512, "Longer prompts keep their last tokens.")
    spec_tokens: int = flag(5, "K, the drafted tokens per sequence and round.")
    batch_sizes: tuple[int, ...] = _batch_sizes("1,2,4,8,16")
    algorithms: tuple[AlgorithmName, ...] = _algorithms(",".join(COMPARED))
    device: str = flag("auto", "auto, cpu, cuda or cuda:N.")
    threads: int = flag(1, "Torch threads; 0 takes all cores.")
    repeats: int = flag(3, "Turns that are measured; medians are reported.")
    budget_s: float = flag(3600.0, "Seconds after which no further cell is begun.")
    scale: int = flag(8, "Divides the shapes of random targets; 1: real size.")
    seed: int = flag(0, "Of everything that is drawn.")
    output: Path = flag(RESULTS, "Folder of the JSON files.")

    @property
    def pairs(self) -> list[PairSpec]:
        return [parse_pair(text) for text in self.pair]

    @property
    def settings(self) -> dict[str, Any]:
        """What a reader needs to judge or repeat a run, besides its name."""
        shown = ("sample", "max_tokens", "max_prompt_len", "spec_tokens", "repeats", "seed")
        return {"input": self.input.name, **{name: getattr(self, name) for name in shown}}


@dataclass(frozen=True, kw_only=True)
class EquivalenceOptions(RunOptions):
    max_tokens: int = flag(50, "Most tokens of an answer.")
    max_prompt_len: int = flag(1024, "Longer prompts keep their last tokens.")
    batch_sizes: tuple[int, ...] = _batch_sizes("4,8")
    repeats: int = 1
    dtypes: tuple[DType, ...] = flag(
        "bfloat16,float32", "Separated by commas.", parse=_members(DType)
    )
    numerics: tuple[Numerics, ...] = flag(
        "fast,exact", "Separated by commas.", parse=_members(Numerics)
    )


@dataclass(frozen=True, kw_only=True)
class TimedOptions(RunOptions):
    dtype: DType = flag(DType.BFLOAT16, "Of weights and caches.")
    numerics: Numerics = flag(Numerics.FAST, "Of the target.")


@dataclass(frozen=True, kw_only=True)
class ThroughputOptions(TimedOptions):
    batch_sizes: tuple[int, ...] = _batch_sizes("1,2,4,8,16,32")


@dataclass(frozen=True, kw_only=True)
class WindowOptions(TimedOptions):
    sample: int = _sample(16)
    batch_sizes: tuple[int, ...] = _batch_sizes("4")
    algorithms: tuple[AlgorithmName, ...] = _algorithms(_WITH_WINDOW)
    ratios: tuple[int, ...] = flag("1,2,3,4,6,8", "W / B, separated by commas.", parse=_positive)


@dataclass(frozen=True, kw_only=True)
class OnlineOptions(TimedOptions):
    sample: int = _sample(16)
    batch_sizes: tuple[int, ...] = _batch_sizes("2,8")
    repeats: int = 1
    load: float = flag(0.7, "Arrivals over what exspec completes when all wait.", min=0.01)
    timer: Timer | None = flag(None, "Of a step; default processor on a CPU, else wall.")


@dataclass(frozen=True, kw_only=True)
class GroupingRun:
    batch_sizes: tuple[int, ...] = _batch_sizes("2,4,8,16,32")
    algorithms: tuple[AlgorithmName, ...] = _algorithms(_WITH_WINDOW)
    probabilities: tuple[float, ...] = flag(
        "0.5,0.7,0.9",
        "Of a drafted token to be right, separated by commas.",
        parse=fractions,
    )
    sizes: GroupingOptions = section(GroupingOptions)
    output: Path = flag(RESULTS, "Folder of the JSON files.")


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    results: Path = flag(RESULTS, "Folder of the JSON files.")
    document: Path = flag(DOCUMENT, "The Markdown file to write.")
