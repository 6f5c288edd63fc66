"""Speculation on and off, priced by a table of pass costs: what the pool's choices earn where no
machine disturbs the measurement.

Answers are decoded once and kept. The pool, its controller and prompt lookup then run over them as
they do in the service, in virtual time: the target emits what was recorded, and a pass takes what
the table says of its rows. A client asks its next question when its answer has ended; messages take
nothing. What passes tell the controller may be noisy; they are counted at their price.

    python -m benchmarks.priced_rounds --answers answers.json --output priced.json
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from unittest import mock

import torch
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.harness.commands import write_json
from benchmarks.paper.answer_book import AnswerBook
from benchmarks.paper.recorded_draft import RecordedDraft
from benchmarks.priced_passes import Bill, PricedPasses, Prices, RowPrices
from benchmarks.served_peers.prompts import SHORT, Prompts, token_ids
from benchmarks.synthetic import record
from deployments.cli.progress import cell_progress
from deployments.demo.models import resolve_model
from deployments.simulation.step_costs import parse_step_ms
from specdec_core import (
    Engine,
    Request,
    SamplingParams,
    SchedulerConfig,
    SpecMethod,
    SpeculationConfig,
)
from specdec_core.config import KPolicyName, default_draft_tokens
from specdec_core.loading.loader import load_model
from specdec_core.model import CachedModel
from specdec_core.worker import replica as replica_module

_NUM_PROMPTS = 32
_NUM_SEEDS = {0.0: 1, 0.8: 6}
"""Answers of each prompt by temperature."""
_MAX_TOKENS = 128
OFF = SpeculationConfig(method=SpecMethod.NONE, k_policy=KPolicyName.FIXED)
SHIPPED = SpeculationConfig(
    method=SpecMethod.NGRAM,
    num_draft_tokens=default_draft_tokens(KPolicyName.GOODPUT, has_gpu=False),
    k_policy=KPolicyName.GOODPUT,
)
_WAVES = 8
"""Requests of a stream, as in the paired turns of served_peers."""


class Question(NamedTuple):
    """Its prompt's first id names it, so that equal prompts may have several answers."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]


class Answers(NamedTuple):
    """What was decoded, by temperature. Ids are numbered as they come, so that logits are short."""

    questions: dict[float, list[Question]]
    num_ids: int


@dataclass(frozen=True)
class Turn:
    tokens: int
    seconds: float
    decoding_s: float
    """Without the rows of prompts."""
    num_drafted: int
    num_accepted: int


def recorded_target(questions: Sequence[Question], vocab_size: int, bill: Bill) -> CachedModel:
    """A target that emits the answers at the price of passes."""
    prompts, answers = zip(*questions, strict=True)
    book = AnswerBook(prompts, answers, probability=1.0, vocab_size=vocab_size)
    return RecordedDraft(PricedPasses(vocab_size, bill), book)


def run(
    questions: Sequence[Question],
    target: CachedModel,
    bill: Bill,
    *,
    streams: int,
    temperature: float,
    speculation: SpeculationConfig,
) -> Turn:
    """All questions, so many at a time, each answered whole. Raises AssertionError where an answer
    differs from the recorded one."""
    config = SchedulerConfig(max_group_size=streams, window=2 * streams, speculation=speculation)
    waiting = list(enumerate(questions))
    told: dict[str, list[int]] = {}
    before_s, decoding_s = bill.priced_s, bill.decoding_s
    with mock.patch.object(replica_module, "time", bill):
        engine = Engine(target, config=config, clock=bill.perf_counter)

        def ask() -> None:
            place, question = waiting.pop(0)
            told[str(place)] = []
            params = SamplingParams(
                temperature=temperature, max_tokens=len(question.answer), ignore_eos=True
            )
            engine.add_request(
                Request(request_id=str(place), prompt_token_ids=question.prompt, params=params)
            )

        for _ in range(min(streams, len(waiting))):
            ask()
        while engine.has_work:
            for event in engine.step():
                told[event.request_id] += event.token_ids
                if event.finish_reason is not None and waiting:
                    ask()
    assert [tuple(ids) for ids in told.values()] == [question.answer for question in questions]
    stats = engine.stats
    num_tokens = sum(map(len, told.values()))
    return Turn(
        num_tokens,
        bill.priced_s - before_s,
        bill.decoding_s - decoding_s,
        stats.num_drafted,
        stats.num_accepted,
    )


def asked(answers: Answers, temperature: float, count: int) -> list[Question]:
    """`count` named questions, from the start again after the last."""
    own = answers.questions[temperature]
    return named([own[place % len(own)] for place in range(count)])


def named(questions: Sequence[Question]) -> list[Question]:
    """Begin each prompt with an ID of its own. The other IDs make room for these."""
    count = len(questions)

    def behind(ids: Sequence[int]) -> tuple[int, ...]:
        return tuple(count + i for i in ids)

    return [
        Question((place, *behind(question.prompt)), behind(question.answer))
        for place, question in enumerate(questions)
    ]


def decoded(model: str, cache: Path, threads: int) -> Answers:
    """Plain answers to the short prompts of served_peers."""
    torch.set_num_threads(threads)
    folder = str(resolve_model(model))
    prompts = [tuple(ids) for ids in token_ids(folder, Prompts().lines(SHORT, _NUM_PROMPTS, 0))]
    target = load_model(folder).model
    numbers: dict[int, int] = {}

    def numbered(ids: Sequence[int]) -> tuple[int, ...]:
        return tuple(numbers.setdefault(i, len(numbers)) for i in ids)

    questions: dict[float, list[Question]] = {temperature: [] for temperature in _NUM_SEEDS}
    with cell_progress(sum(_NUM_SEEDS.values())) as tell:
        for temperature, num_seeds in _NUM_SEEDS.items():
            for seed in range(num_seeds):
                params = SamplingParams(
                    temperature=temperature, seed=seed, max_tokens=_MAX_TOKENS, ignore_eos=True
                )
                found = record(target, prompts, params, cache, model)
                pairs = zip(found.prompts, found.answers, strict=True)
                questions[temperature] += (Question(numbered(p), numbered(a)) for p, a in pairs)
                tell(f"answers at temperature {temperature:g}", 1)
    return Answers(questions, len(numbers))


def main(
    answers: Annotated[Path, typer.Option(help="Where answers are kept for the next run.")],
    model: Annotated[str, typer.Option(help="Who answers: folder or name.")] = "smollm2-135m",
    rows: Annotated[
        str, typer.Option(help="Milliseconds of a pass by its rows.")
    ] = "1:9.4,2:9.3,6:10.1,8:12.7,12:14.1,16:18.0,32:33.1",
    fixed_ms: Annotated[float, typer.Option(help="Of every pass besides.")] = 1.5,
    cached_us: Annotated[float, typer.Option(help="Of a row for each token before it.")] = 2.1,
    noise: Annotated[float, typer.Option(help="Of what passes tell, as a logarithm.")] = 0.05,
    streams: str = "1,8,16,32",
    turns: Annotated[int, typer.Option(help="With speculation, each with noise of its own.")] = 3,
    threads: int = 2,
    output: Annotated[Path | None, typer.Option(help="JSON file.")] = None,
) -> None:
    """Print what speculation earns. The default table is that of two cores of a Zen 4 (decision
    0010)."""
    prices = RowPrices(parse_step_ms(rows), fixed_ms / 1e3, cached_us / 1e6)
    recorded = decoded(model, answers, threads)
    torch.set_num_threads(1)
    shapes = [(t, int(count)) for t in _NUM_SEEDS for count in streams.split(",")]
    cells = []
    with cell_progress(len(shapes)) as tell:
        for shape in shapes:
            cells.append(measure(recorded, prices, noise, *shape, turns))
            tell(f"{shape[1]} streams", 1)
    result = {
        "model": model,
        "rows_ms": rows,
        "fixed_ms": fixed_ms,
        "cached_us": cached_us,
        "noise": noise,
        "cells": cells,
    }
    _show(cells)
    write_json(result, output)


def measure(
    answers: Answers, prices: Prices, noise: float, temperature: float, streams: int, turns: int
) -> dict[str, Any]:
    """One cell."""
    questions = asked(answers, temperature, _WAVES * streams)

    def turn(speculation: SpeculationConfig, seed: int) -> Turn:
        bill = Bill(prices, noise, random.Random(seed))
        target = recorded_target(questions, len(questions) + answers.num_ids, bill)
        return run(
            questions,
            target,
            bill,
            streams=streams,
            temperature=temperature,
            speculation=speculation,
        )

    off = turn(OFF, 0)
    on = [turn(SHIPPED, seed) for seed in range(turns)]
    return {
        "temperature": temperature,
        "streams": streams,
        "on_over_off": [off.seconds / one.seconds for one in on],
        "drafted_share": [one.num_drafted / one.tokens for one in on],
        "accepted_share": [one.num_accepted / one.tokens for one in on],
    }


def _show(cells: Sequence[dict[str, Any]]) -> None:
    table = Table("temperature", "streams", "on / off", "drafted", "accepted")
    for cell in cells:
        shares = (max(cell[name]) for name in ("drafted_share", "accepted_share"))
        ratios = " ".join(f"{ratio:.3f}" for ratio in cell["on_over_off"])
        told = (f"{cell['temperature']:g}", str(cell["streams"]), ratios)
        table.add_row(*told, *(f"{share:.1%}" for share in shares))
    table.caption = "Drafted and accepted: of the tokens of answers, at most of a turn."
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
