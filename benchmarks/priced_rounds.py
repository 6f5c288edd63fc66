"""Speculation on and off, priced by a table of pass costs: what the pool's choices earn where no
machine disturbs the measurement.

Answers are decoded once and kept. The pool, its controller and prompt lookup then run over them as
they do in the service, in virtual time: the target emits what was recorded, and a pass takes what
the table says of its rows. A client asks its next question when its answer has ended; messages take
nothing. What passes tell the controller may be noisy; they are counted at their price.

    python -m benchmarks.priced_rounds --answers answers.json --output priced.json
"""

from __future__ import annotations

import json
import math
import random
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.served_peers.prompts import SHORT, Prompts, token_ids
from deployments.demo_models import resolve_model
from deployments.progress import cell_progress
from specdec_core import Engine, PoolConfig, Request, SamplingParams, SpecMethod, SpeculationConfig
from specdec_core import replica as replica_module
from specdec_core.config import KPolicyName
from specdec_core.engine import AlgorithmName
from specdec_core.models.cached_model import Feed, PrefixCache
from specdec_core.models.loading import LoadConfig
from specdec_core.step_times import StepTime

_NUM_PROMPTS = 32
_SEEDS = {0.0: 1, 0.8: 6}
"""Answers of each prompt by temperature."""
_MAX_TOKENS = 128
_DECODED_TOGETHER = 16
_WAVES = 8
"""Requests of a stream, as in the paired turns of served_peers."""
_TIMED = ((1, 1), (1, 5), (4, 4), (8, 8), (16, 16), (32, 32), (8, 40))
"""(sequences, rows) of the passes that a start times."""
_BLOCK = 16


@dataclass(frozen=True)
class Prices:
    """What a pass takes: by its rows, between those that were measured in proportion, and for what
    they read."""

    ms_by_rows: Mapping[int, float]
    fixed_ms: float
    cached_us: float
    """Of a row for each token before it."""

    def seconds(self, num_rows: int, num_read: int) -> float:
        """`num_read`: cached tokens of all rows together."""
        sizes = sorted(self.ms_by_rows)
        place = bisect_left(sizes, num_rows)
        if place == len(sizes):
            rows_ms = self.ms_by_rows[sizes[-1]] * num_rows / sizes[-1]
        elif place == 0 or sizes[place] == num_rows:
            rows_ms = self.ms_by_rows[sizes[place]]
        else:
            less, more = sizes[place - 1], sizes[place]
            share = (num_rows - less) / (more - less)
            rows_ms = self.ms_by_rows[less] * (1 - share) + self.ms_by_rows[more] * share
        return (rows_ms + self.fixed_ms + self.cached_us * num_read / 1e3) / 1e3


@dataclass(frozen=True)
class Question:
    prompt: tuple[int, ...]
    answer: tuple[int, ...]


@dataclass(eq=False)
class Recorded:
    """A target that emits recorded answers; the virtual clock of its passes.

    The first id of a prompt names its question.
    """

    vocab_size: int
    prices: Prices
    noise: float = 0.0
    """Of a pass, as a logarithm."""
    rng: random.Random = field(default_factory=random.Random)
    now: float = 0.0
    priced_s: float = 0.0
    questions: dict[int, Question] = field(default_factory=dict)
    prefix_cache: PrefixCache | None = None
    recording_s: float = 0.0
    tile_rows: int = 0
    num_blocks: int = 10**6
    block_size: int = _BLOCK
    max_model_len: int = 4096
    _slots: dict[int, list[int]] = field(default_factory=dict)
    _num_allocated: int = 0

    @property
    def step_times(self) -> tuple[StepTime, ...]:
        return tuple(StepTime(size, rows, self.prices.seconds(rows, 0)) for size, rows in _TIMED)

    @property
    def num_free_blocks(self) -> int:
        return self.num_blocks - sum(-(-len(ids) // _BLOCK) for ids in self._slots.values())

    def perf_counter(self) -> float:
        return self.now

    def allocate(self) -> int:
        self._num_allocated += 1
        self._slots[self._num_allocated] = []
        return self._num_allocated

    def free(self, slot: int) -> None:
        del self._slots[slot]

    def wait(self) -> None:
        """Passes are done when they return."""

    def cached_len(self, slot: int) -> int:
        return len(self._slots[slot])

    def rollback(self, slot: int, length: int) -> None:
        del self._slots[slot][length:]

    def score(self, feeds: Sequence[Feed]) -> Tensor:
        num_rows = sum(len(feed.tokens) for feed in feeds)
        num_read = sum(len(feed.tokens) * self.cached_len(feed.slot) for feed in feeds)
        seconds = self.prices.seconds(num_rows, num_read)
        self.priced_s += seconds
        self.now += seconds * math.exp(self.rng.gauss(0.0, self.noise))
        rows = [row for feed in feeds for row in self._fed(feed)]
        return torch.stack(rows) if rows else torch.empty(0, self.vocab_size)

    def _fed(self, feed: Feed) -> Iterator[Tensor]:
        ids = self._slots[feed.slot]
        ids += feed.tokens
        question = self.questions[ids[0]]
        for end in range(len(ids) - feed.num_logits + 1, len(ids) + 1):
            row = torch.full((self.vocab_size,), -1e4)
            place = end - len(question.prompt)
            row[question.answer[place] if 0 <= place < len(question.answer) else 0] = 0.0
            yield row


@dataclass(frozen=True)
class Turn:
    tokens: int
    seconds: float
    num_drafted: int
    num_accepted: int


def run(
    questions: Sequence[Question],
    model: Recorded,
    *,
    streams: int,
    temperature: float,
    is_speculating: bool,
) -> Turn:
    """All questions, so many at a time, each answered whole. Raises AssertionError where an answer
    differs from the recorded one."""
    speculation = SpeculationConfig(
        method=SpecMethod.NGRAM if is_speculating else SpecMethod.NONE,
        k_policy=KPolicyName.GOODPUT if is_speculating else KPolicyName.FIXED,
    )
    config = PoolConfig(max_group_size=streams, window=2 * streams, speculation=speculation)
    waiting = list(enumerate(questions))
    told: dict[str, list[int]] = {}
    with mock.patch.object(replica_module, "time", model):
        engine = Engine(model, config=config, clock=model.perf_counter)

        def ask() -> None:
            place, question = waiting.pop(0)
            model.questions[question.prompt[0]] = question
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
    return Turn(num_tokens, model.priced_s, stats.num_drafted, stats.num_accepted)


def asked(answers: Mapping[str, Any], temperature: float, count: int) -> list[Question]:
    """`count` recorded answers. Ids make room for those that name questions."""
    own = [answer for answer in answers["answers"] if answer["temperature"] == temperature]
    questions = []
    for place in range(count):
        answer = own[place % len(own)]
        prompt = (place, *(count + i for i in answers["prompts"][answer["prompt"]]))
        questions.append(Question(prompt, tuple(count + i for i in answer["ids"])))
    return questions


def record(model: str, threads: int) -> dict[str, Any]:
    """Plain decoding of the short prompts of served_peers; ids are numbered as they come, so that
    logits are short."""
    torch.set_num_threads(threads)
    folder = str(resolve_model(model))
    prompts = token_ids(folder, Prompts().lines(SHORT, _NUM_PROMPTS, 0))
    pool = PoolConfig(max_group_size=_DECODED_TOGETHER, window=2 * _DECODED_TOGETHER)
    engine = Engine.load(
        folder, load=LoadConfig(), pool=pool, algorithm=AlgorithmName.AUTOREGRESSIVE
    )
    found: list[dict[str, Any]] = [
        {"temperature": temperature, "prompt": prompt, "ids": []}
        for temperature, num_seeds in _SEEDS.items()
        for prompt in list(range(_NUM_PROMPTS)) * num_seeds
    ]
    requests = [
        Request(
            request_id=str(place),
            prompt_token_ids=tuple(prompts[answer["prompt"]]),
            params=SamplingParams(
                temperature=answer["temperature"],
                seed=place,
                max_tokens=_MAX_TOKENS,
                ignore_eos=True,
            ),
        )
        for place, answer in enumerate(found)
    ]
    with cell_progress(len(requests)) as tell:
        for event in engine.generate(requests):
            found[int(event.request_id)]["ids"] += event.token_ids
            if event.finish_reason is not None:
                tell("answers", 1)
    numbers: dict[int, int] = {}
    for ids in (*prompts, *(answer["ids"] for answer in found)):
        ids[:] = [numbers.setdefault(i, len(numbers)) for i in ids]
    return {"model": model, "prompts": prompts, "answers": found, "num_ids": len(numbers)}


def main(
    answers: Annotated[Path, typer.Option(help="Recorded answers; written where there is none.")],
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
    if not answers.exists():
        answers.write_text(json.dumps(record(model, threads)))
    recorded = json.loads(answers.read_text())
    pairs = (pair.split(":") for pair in rows.split(","))
    prices = Prices({int(count): float(ms) for count, ms in pairs}, fixed_ms, cached_us)
    torch.set_num_threads(1)
    shapes = [(temperature, int(count)) for temperature in _SEEDS for count in streams.split(",")]
    cells = []
    with cell_progress(len(shapes)) as tell:
        for shape in shapes:
            cells.append(measure(recorded, prices, noise, *shape, turns))
            tell(f"{shape[1]} streams", 1)
    result = {
        "model": recorded["model"],
        "rows_ms": {str(count): ms for count, ms in prices.ms_by_rows.items()},
        "fixed_ms": fixed_ms,
        "cached_us": cached_us,
        "noise": noise,
        "cells": cells,
    }
    _show(result)
    if output is not None:
        output.write_text(json.dumps(result, indent=1) + "\n")


def measure(
    answers: Mapping[str, Any],
    prices: Prices,
    noise: float,
    temperature: float,
    streams: int,
    turns: int,
) -> dict[str, Any]:
    """One cell."""
    questions = asked(answers, temperature, _WAVES * streams)

    def turn(is_speculating: bool, seed: int) -> Turn:
        vocab_size = len(questions) + answers["num_ids"]
        model = Recorded(vocab_size, prices, noise=noise, rng=random.Random(seed))
        return run(
            questions,
            model,
            streams=streams,
            temperature=temperature,
            is_speculating=is_speculating,
        )

    off = turn(False, 0)
    on = [turn(True, seed) for seed in range(turns)]
    return {
        "temperature": temperature,
        "streams": streams,
        "on_over_off": [off.seconds / one.seconds for one in on],
        "drafted_share": [one.num_drafted / one.tokens for one in on],
        "accepted_share": [one.num_accepted / one.tokens for one in on],
    }


def _show(result: Mapping[str, Any]) -> None:
    table = Table("temperature", "streams", "on / off", "drafted", "accepted")
    for cell in result["cells"]:
        shares = (max(cell[name]) for name in ("drafted_share", "accepted_share"))
        ratios = " ".join(f"{ratio:.3f}" for ratio in cell["on_over_off"])
        told = (f"{cell['temperature']:g}", str(cell["streams"]), ratios)
        table.add_row(*told, *(f"{share:.1%}" for share in shares))
    table.caption = "Drafted and accepted: of the tokens of answers, at most of a turn."
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
