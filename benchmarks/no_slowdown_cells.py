"""The contestants of a cell of the sweep: plain decoding, speculation off, every fixed K, the
controller."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.paper.answer_book import AnswerBook
from benchmarks.replay_k import traces_to
from benchmarks.synthetic import (
    Recording,
    idle_engine,
    lookups_from,
    plain_engine,
    synthetic_engine,
)
from specdec_core.config import KPolicyName
from specdec_core.engine import Engine
from specdec_core.model import CachedModel
from specdec_core.request import FinishReason

PLAIN = "autoregressive"
OFF = "off"
"""The controller's engine with speculation off."""
CONTROLLER = "goodput"


class Cell(NamedTuple):
    batch: int
    acceptance: float | None
    """Chance of a drafted token. None: what prompt lookup itself finds in the prompts."""
    num_prompts: int

    @property
    def rate(self) -> str:
        """Acceptance for people to read."""
        return "own" if self.acceptance is None else f"{self.acceptance:g}"

    @property
    def name(self) -> str:
        return f"batch {self.batch}, acceptance {self.rate}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """All prompts of a cell, once."""

    tokens_per_second: float
    decode_tokens_per_second: float
    """Tokens after the first one of each answer, over the time from it to the answer's end, summed
    over the answers: the speed of one sequence without the time of prompts."""
    num_passes: int
    """Of the target."""
    mean_k: float
    """Drafted tokens per sequence and round."""
    num_different: int
    """Answers that are not the recorded ones."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What all cells share."""

    target: CachedModel
    draft: CachedModel | None
    recording: Recording
    fixed_ks: tuple[int, ...]
    max_k: int
    """Maximum K of the controller."""
    traces: Path | None = None
    """Folder for what the controller was told and decided."""

    @contextmanager
    def contest(self, cell: Cell) -> Iterator[dict[str, Callable[[], Run]]]:
        """Each of them runs the cell once more."""
        if self.traces is None:
            yield self._contest(cell)
            return
        self.traces.mkdir(parents=True, exist_ok=True)
        name = f"batch_{cell.batch}_acceptance_{cell.rate}.jsonl"
        with (self.traces / name).open("w") as file, traces_to(file):
            yield self._contest(cell)

    def _contest(self, cell: Cell) -> dict[str, Callable[[], Run]]:
        book = self.recording.book(self.target, cell.acceptance or 0.0)
        make = partial(synthetic_engine, self.target, self.draft, book, batch=cell.batch)
        engines = {PLAIN: plain_engine(self.target, cell.batch)}
        engines[OFF] = idle_engine(self.target, cell.batch)
        engines |= {f"K={k}": make(num_draft_tokens=k) for k in self.fixed_ks}
        engines[CONTROLLER] = make(num_draft_tokens=self.max_k, k_policy=KPolicyName.GOODPUT)
        return {name: partial(self._run, engine, book, cell) for name, engine in engines.items()}

    def _run(self, engine: Engine, book: AnswerBook, cell: Cell) -> Run:
        """Nothing is found that an earlier run has cached: plain decoding keeps no prefixes."""
        before, salt = engine.stats, str(time.monotonic_ns())
        answers: dict[str, tuple[int, ...]] = {}
        times: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
        with self._lookups(book, cell):
            started = time.perf_counter()
            for event in engine.generate(self.recording.requests(cell.num_prompts, salt)):
                assert event.finish_reason is not FinishReason.ERROR, event.error
                answers[event.request_id] = answers.get(event.request_id, ()) + event.token_ids
                times[event.request_id].append((time.perf_counter(), len(event.token_ids)))
            seconds = time.perf_counter() - started
        after = engine.stats
        rounds = after.num_sequence_rounds - before.num_sequence_rounds
        recorded = self.recording.answers
        return Run(
            tokens_per_second=sum(map(len, answers.values())) / seconds,
            decode_tokens_per_second=decode_rate(times.values()),
            num_passes=after.num_rounds - before.num_rounds,
            mean_k=(after.num_drafted - before.num_drafted) / max(rounds, 1),
            num_different=sum(answer != recorded[int(name)] for name, answer in answers.items()),
        )

    def _lookups(self, book: AnswerBook, cell: Cell) -> AbstractContextManager[None]:
        is_arranged = self.draft is None and cell.acceptance is not None
        return lookups_from(book) if is_arranged else nullcontext()


def decode_rate(answers: Iterable[Sequence[tuple[float, int]]]) -> float:
    """Return tokens per second of one sequence, from (time, tokens) of each answer's pieces. What
    came with an answer's first piece does not count."""
    pieces = [own for own in answers if len(own) > 1]
    tokens = sum(number for own in pieces for _, number in own[1:])
    seconds = sum(own[-1][0] - own[0][0] for own in pieces)
    return tokens / seconds if seconds > 0 else 0.0
