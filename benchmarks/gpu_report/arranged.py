"""A pair whose proposals, and if asked choices, come from a recording: passes, caches and
verification are real, only what the models say is arranged."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

from benchmarks.paper.answer_book import AnswerBook
from benchmarks.paper.recorded_draft import RecordedDraft
from benchmarks.synthetic import lookups_from
from specdec_core import Request, SchedulerConfig, SpecMethod, SpeculationConfig
from specdec_core.algorithms.protocol import AlgorithmStats
from specdec_core.config import DRAFT_MODEL_METHODS, KPolicyName
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.model import CachedModel
from specdec_core.request import FinishReason

_COUNTED = (
    "num_rounds",
    "num_committed",
    "num_drafted",
    "num_accepted",
    "num_sequence_rounds",
    "num_proposed_rounds",
)
"""Of what is asked here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to decode."""

    algorithm: AlgorithmName = AlgorithmName.EXSPEC
    method: SpecMethod = SpecMethod.NONE
    rows: int
    k: int = 4
    policy: KPolicyName = KPolicyName.FIXED

    @property
    def name(self) -> str:
        if self.method is SpecMethod.NONE:
            return "plain"
        return f"{self.algorithm}, {self.method}"


def engine(
    way: Way, target: CachedModel, draft: CachedModel | None, ends: frozenset[int] = frozenset()
) -> Engine:
    speculation = SpeculationConfig(method=way.method, num_draft_tokens=way.k, k_policy=way.policy)
    config = SchedulerConfig(max_group_size=way.rows, window=2 * way.rows, speculation=speculation)
    is_plain = way.method is SpecMethod.NONE
    return Engine(
        target,
        draft if way.method in DRAFT_MODEL_METHODS else None,
        config=config,
        algorithm=AlgorithmName.AUTOREGRESSIVE if is_plain else way.algorithm,
        end_token_ids=ends,
    )


def drafted_from(book: AnswerBook, draft: CachedModel) -> RecordedDraft:
    """Passes of `draft`, proposals of the book."""
    return RecordedDraft(draft, book)


@contextmanager
def lookups(way: Way, book: AnswerBook) -> Iterator[None]:
    """Prompt lookup finds what the book says. Where a draft steps in when it finds nothing, it
    looks in earnest."""
    with lookups_from(book) if way.method is SpecMethod.NGRAM else nullcontext():
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """What came out, in the order of the requests, and how fast once every row took part."""

    answers: tuple[tuple[int, ...], ...]
    tokens_per_second: float
    """From the round in which the last request emits its first token to the first end of one; 0
    where that is no round. Every round ends with IDs on the host, so no device is waited for."""
    stats: AlgorithmStats

    @property
    def mean_k(self) -> float:
        """Drafted tokens of a sequence and round with a proposal."""
        return self.stats.num_drafted / max(self.stats.num_proposed_rounds, 1)


def decode(one: Engine, requests: Sequence[Request]) -> Decoded:
    """Raises RuntimeError where a request failed."""
    answers: dict[str, list[int]] = {request.request_id: [] for request in requests}
    before = one.stats
    for request in requests:
        one.add_request(request)
    num_tokens, num_ended, seconds = 0, 0, 0.0
    while one.has_work:
        is_steady = all(answers.values()) and not num_ended
        started = time.perf_counter()
        events = one.step()
        seconds += (time.perf_counter() - started) * is_steady
        for event in events:
            if event.finish_reason is FinishReason.ERROR:
                raise RuntimeError(f"request {event.request_id} failed: {event.error}")
            answers[event.request_id] += event.token_ids
            num_tokens += len(event.token_ids) * is_steady
            num_ended += event.finish_reason is not None
    return Decoded(
        answers=tuple(tuple(answer) for answer in answers.values()),
        tokens_per_second=num_tokens / seconds if seconds else 0.0,
        stats=_between(before, one.stats),
    )


def _between(before: AlgorithmStats, after: AlgorithmStats) -> AlgorithmStats:
    """What was counted in between: the engine may have run before."""
    counted = {name: getattr(after, name) - getattr(before, name) for name in _COUNTED}
    seconds = {
        stage: value - before.seconds.get(stage, 0.0) for stage, value in after.seconds.items()
    }
    return replace(after, **counted, seconds=seconds)
