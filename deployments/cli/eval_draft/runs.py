"""Runs of an evaluation: the same requests decoded without speculation, and with every K."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specdec_core.algorithms.protocol import AlgorithmStats
from specdec_core.config import SchedulerConfig
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.errors import SpecdecError
from specdec_core.model import CachedModel
from specdec_core.request import FinishReason, Request, RequestStats

Report = Callable[[int], None]
"""Called with the number of requests that were finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run over all requests."""

    tokens: dict[str, tuple[int, ...]]
    """Emitted token IDs by request."""
    request_stats: dict[str, RequestStats]
    stats: AlgorithmStats
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        return self.stats.num_committed / self.seconds

    @property
    def tokens_per_round(self) -> float:
        """Tokens committed per sequence and target pass, passes without a proposal included."""
        rounds = self.stats.num_sequence_rounds
        return self.stats.num_committed / rounds if rounds else 1.0

    @property
    def proposed_share(self) -> float:
        """Share of the rounds that checked a proposal."""
        rounds = self.stats.num_sequence_rounds
        return self.stats.num_proposed_rounds / rounds if rounds else 0.0


def decode(
    target: CachedModel,
    draft: CachedModel | None,
    config: SchedulerConfig,
    requests: Sequence[Request],
    report: Report,
    algorithm: AlgorithmName = AlgorithmName.EXSPEC,
) -> Run:
    """Decode all requests. Raises SpecdecError if a request fails."""
    engine = Engine(target, draft, config=config, algorithm=algorithm)
    tokens: dict[str, tuple[int, ...]] = defaultdict(tuple)
    request_stats: dict[str, RequestStats] = {}
    started = time.perf_counter()
    for event in engine.generate(requests):
        tokens[event.request_id] += event.token_ids
        if event.finish_reason is FinishReason.ERROR:
            raise SpecdecError(f"request {event.request_id} failed: {event.error}")
        if event.finish_reason is not None:
            request_stats[event.request_id] = event.stats or RequestStats()
            report(1)
    seconds = time.perf_counter() - started
    return Run(
        tokens=dict(tokens), request_stats=request_stats, stats=engine.stats, seconds=seconds
    )


def acceptance_length(stats: Sequence[RequestStats]) -> float:
    """Return the tokens committed per round with a proposal, over several requests."""
    rounds = sum(s.num_proposed_rounds for s in stats)
    return 1.0 + sum(s.num_accepted for s in stats) / rounds if rounds else 0.0
