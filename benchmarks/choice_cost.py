"""What the coupled choice takes of a round: of drafting, one verification pass and its choices.

8 sequences, K drafted tokens each, again and again from the same place with other seeds. Settings
alternate in one process, with our kernels for the choice and with PyTorch's operations, so that a
busy machine slows all of them; the clocks run around each choice inside the round, the one on the
wall and that of the CPU time that the process was given. Medians.

    python -m benchmarks.choice_cost --input spec_bench_240.jsonl --output F.json
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from unittest.mock import Mock, patch

import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.harness.commands import write_json
from benchmarks.prompts import chat_prompts
from deployments.demo.models import resolve_model
from specdec_core.config import Numerics
from specdec_core.loading.loader import DType, LoadConfig, load_model
from specdec_core.model import score
from specdec_core.sampling import logit_processors, sampler
from specdec_core.sampling.cpu import choice_kernels_for
from specdec_core.sampling.sampler import choose
from specdec_core.sampling_params import SampleRow, SamplingParams, SamplingRules
from specdec_core.worker import round as speculative_round
from specdec_core.worker.model_runner import ModelRunner
from specdec_core.worker.round import RoundRow, propose, round_row, score_and_verify

SETTINGS = {
    "T 0.8, top_p 0.95": SamplingParams(temperature=0.8, top_p=0.95),
    "T 1, top_p 0.9": SamplingParams(top_p=0.9),
    "T 0.8, top_k 40, top_p 0.95": SamplingParams(temperature=0.8, top_k=40, top_p=0.95),
    "T 1, min_p 0.05": SamplingParams(min_p=0.05),
    "T 0.8, all penalties": SamplingParams(
        temperature=0.8,
        top_p=0.95,
        presence_penalty=0.5,
        frequency_penalty=0.2,
        repetition_penalty=1.1,
    ),
    "T 0.8, untruncated": SamplingParams(temperature=0.8),
    "greedy": SamplingParams(temperature=0.0),
}


Medians = dict[str, dict[str, dict[str, dict[str, float]]]]
"""By decider, setting, clock and figure."""


class Times(NamedTuple):
    """Seconds by both clocks."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> Times:
        return cls(time.perf_counter(), time.process_time())

    def since(self, started: Times) -> Times:
        return Times(self.wall - started.wall, self.cpu - started.cpu)


class Cost(NamedTuple):
    """Of one round, and of all choices in it."""

    round: Times
    choice: Times


def main(
    prompts: Annotated[Path, typer.Option("--input", help="Prompts, JSON lines.")],
    model: Annotated[str, typer.Option(help="Folder, hub id or demo name.")] = "smollm2-135m",
    draft: Annotated[str | None, typer.Option(help="Drafts K tokens; none: known ones.")] = None,
    dtype: Annotated[DType, typer.Option()] = DType.BFLOAT16,
    numerics: Annotated[Numerics, typer.Option()] = Numerics.AUTO,
    batch: Annotated[int, typer.Option()] = 8,
    k: Annotated[int, typer.Option(help="Drafted tokens.")] = 4,
    repeats: Annotated[int, typer.Option()] = 30,
    threads: Annotated[int, typer.Option()] = 2,
    output: Annotated[Path | None, typer.Option(help="JSON file.")] = None,
) -> None:
    """Time rounds under several settings and the choices in them."""
    torch.set_num_threads(threads)
    config = LoadConfig(dtype=dtype, numerics=numerics, kv_cache_tokens=65536, max_model_len=2048)
    target = load_model(resolve_model(model), config).model
    fast = replace(config, numerics=Numerics.FAST)
    drafter = load_model(resolve_model(draft), fast).model if draft else None
    bench = _Bench(target, drafter, chat_prompts(resolve_model(model), prompts, batch), k)
    medians = _measure(bench, repeats)
    result: dict[str, Any] = {"model": model, "draft": draft, "dtype": dtype, "threads": threads}
    result |= {"numerics": target.numerics, "batch": batch, "k": k, "repeats": repeats}
    result |= {"median": medians}
    _print(medians)
    write_json(result, output)


class _Bench:
    """Sequences that take the same round again and again."""

    def __init__(
        self,
        target: ModelRunner,
        draft: ModelRunner | None,
        prompts: Sequence[tuple[int, ...]],
        k: int,
    ) -> None:
        self._target, self._draft, self._k = target, draft, k
        self._ids = [_decode(target, prompt, k + 1) for prompt in prompts]
        self._slots = [self._cache(model) for model in (target, draft) if model is not None]

    def _cache(self, model: ModelRunner) -> list[int]:
        slots = [model.allocate() for _ in self._ids]
        for slot, ids in zip(slots, self._ids, strict=True):
            score(model, [(slot, ids[: -self._k - 1], 0)])
        return slots

    def run_round(self, params: SamplingParams) -> Cost:
        """From K + 1 tokens before the sequences' ends; both caches are as before afterwards."""
        rules = [SamplingRules(params, len(ids) // 2) for ids in self._ids]
        with _choice_watch() as choices:
            started = Times.now()
            proposals = self._propose(rules)
            score_and_verify(self._target, self._turns(0, rules, proposals, self._k + 1))
            whole = Times.now().since(started)
        models = [model for model in (self._target, self._draft) if model is not None]
        for model, slots in zip(models, self._slots, strict=True):
            for slot, ids in zip(slots, self._ids, strict=True):
                model.rollback(slot, len(ids) - self._k - 1)
        return Cost(whole, Times(sum(c.wall for c in choices), sum(c.cpu for c in choices)))

    def _propose(self, rules: Sequence[SamplingRules]) -> list[tuple[int, ...]]:
        if self._draft is None:
            return [ids[-self._k :] for ids in self._ids]
        return propose(self._draft, self._turns(1, rules, [()] * len(rules), self._k))

    def _turns(
        self,
        place: int,
        rules: Sequence[SamplingRules],
        proposals: Sequence[tuple[int, ...]],
        num_choices: int,
    ) -> list[RoundRow]:
        k, parts = self._k, zip(self._slots[place], self._ids, rules, proposals, strict=True)
        return [
            round_row(slot, ids[-k - 1 : -k], drafted, num_choices, own, ids=ids[: -k - 1])
            for slot, ids, own, drafted in parts
        ]


@contextmanager
def _choice_watch() -> Iterator[list[Times]]:
    """What every choice took that a round makes in between."""
    times: list[Times] = []

    def timed(*arguments: Any) -> list[int]:
        started = Times.now()
        chosen = choose(*arguments)
        times.append(Times.now().since(started))
        return chosen

    with patch.object(speculative_round, "choose", timed):
        yield times


def _decode(model: ModelRunner, prompt: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The prompt and `count` sampled tokens: a proposal that the target has made itself."""
    rules = SamplingRules(SamplingParams(temperature=0.8, max_tokens=count), len(prompt))
    slot, ids = model.allocate(), prompt
    for _ in range(count):
        logits = score(model, [(slot, ids[model.cached_len(slot) :], 1)])
        ids = (*ids, *choose(logits, [SampleRow(rules, len(ids))], model.vocab_size))
    model.free(slot)
    return ids


def _measure(bench: _Bench, repeats: int) -> Medians:
    """By decider and setting, after two warm-ups."""
    deciders = {"kernels": choice_kernels_for(torch.empty(0)), "PyTorch": None}
    costs: dict[str, dict[str, list[Cost]]] = {
        decider: {name: [] for name in SETTINGS} for decider in deciders
    }
    for turn in track(range(repeats + 2), description="repeats"):
        for decider, kernels in deciders.items():
            found = Mock(return_value=kernels)
            with (
                patch.object(sampler, "choice_kernels_for", found),
                patch.object(logit_processors, "choice_kernels_for", found),
            ):
                for name, params in SETTINGS.items():
                    cost = bench.run_round(replace(params, seed=turn))
                    if turn >= 2:
                        costs[decider][name].append(cost)
    return {
        decider: {name: _medians(some) for name, some in by_name.items()}
        for decider, by_name in costs.items()
    }


def _medians(costs: Sequence[Cost]) -> dict[str, dict[str, float]]:
    """By clock."""
    return {
        clock: {
            "round_ms": 1e3 * statistics.median(getattr(cost.round, clock) for cost in costs),
            "choice_ms": 1e3 * statistics.median(getattr(cost.choice, clock) for cost in costs),
            "share": statistics.median(
                getattr(cost.choice, clock) / getattr(cost.round, clock) for cost in costs
            ),
        }
        for clock in Times._fields
    }


def _print(medians: Medians) -> None:
    table = Table("", "who chooses", "round ms", "choice ms", "share", "share of the CPU time")
    for name in SETTINGS:
        for decider, by_name in medians.items():
            wall, cpu = by_name[name]["wall"], by_name[name]["cpu"]
            shares = (f"{100 * wall['share']:.1f} %", f"{100 * cpu['share']:.1f} %")
            times = (f"{wall['round_ms']:.1f}", f"{wall['choice_ms']:.2f}")
            table.add_row(name, decider, *times, *shares)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
