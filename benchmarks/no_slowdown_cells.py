"""The contestants of a cell of the sweep: plain decoding, every fixed K, the controller."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.paper.answer_book import AnswerBook
from benchmarks.replay_k import traces_to
from benchmarks.synthetic import Recording, lookups_from, plain_engine, synthetic_engine
from specdec_core.config import KPolicyName
from specdec_core.engine import Engine
from specdec_core.models.cached_model import CachedModel
from specdec_core.request import FinishReason

PLAIN = "autoregressive"
CONTROLLER = "goodput"


class Cell(NamedTuple):
    batch: int
    acceptance: float
    num_prompts: int

    @property
    def name(self) -> str:
        return f"batch {self.batch}, acceptance {self.acceptance:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """All prompts of a cell, once."""

    tokens_per_second: float
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
    traces: Path | None = None
    """Folder for what the controller was told and decided."""

    @contextmanager
    def contest(self, cell: Cell) -> Iterator[dict[str, Callable[[], Run]]]:
        """Each of them runs the cell once more."""
        if self.traces is None:
            yield self._contest(cell)
            return
        self.traces.mkdir(parents=True, exist_ok=True)
        name = f"batch_{cell.batch}_acceptance_{cell.acceptance:g}.jsonl"
        with (self.traces / name).open("w") as file, traces_to(file):
            yield self._contest(cell)

    def _contest(self, cell: Cell) -> dict[str, Callable[[], Run]]:
        book = self.recording.book(self.target, cell.acceptance)
        make = partial(synthetic_engine, self.target, self.draft, book, batch=cell.batch)
        engines = {PLAIN: plain_engine(self.target, cell.batch)}
        engines |= {f"K={k}": make(num_draft_tokens=k) for k in self.fixed_ks}
        engines[CONTROLLER] = make(
            num_draft_tokens=max(self.fixed_ks), k_policy=KPolicyName.GOODPUT
        )
        return {name: partial(self._run, engine, book, cell) for name, engine in engines.items()}

    def _run(self, engine: Engine, book: AnswerBook, cell: Cell) -> Run:
        """Nothing is found that an earlier run has cached: plain decoding keeps no prefixes."""
        before, salt = engine.stats, str(time.monotonic_ns())
        answers: dict[str, tuple[int, ...]] = {}
        with self._lookups(book):
            started = time.perf_counter()
            for event in engine.generate(self.recording.requests(cell.num_prompts, salt)):
                assert event.finish_reason is not FinishReason.ERROR, event.error
                answers[event.request_id] = answers.get(event.request_id, ()) + event.token_ids
            seconds = time.perf_counter() - started
        after = engine.stats
        rounds = after.num_sequence_rounds - before.num_sequence_rounds
        recorded = self.recording.answers
        return Run(
            tokens_per_second=sum(map(len, answers.values())) / seconds,
            num_passes=after.num_rounds - before.num_rounds,
            mean_k=(after.num_drafted - before.num_drafted) / max(rounds, 1),
            num_different=sum(answer != recorded[int(name)] for name, answer in answers.items()),
        )

    def _lookups(self, book: AnswerBook) -> AbstractContextManager[None]:
        return lookups_from(book) if self.draft is None else nullcontext()
