"""A measured run: a new engine decodes requests that are queued together, over loaded models."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from deployments.cli.generate.output import run_stats
from specdec_core.algorithms.protocol import AlgorithmStats
from specdec_core.config import SchedulerConfig
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.errors import SpecdecError
from specdec_core.model import CachedModel
from specdec_core.request import FinishReason, Request, RequestStats

Report = Callable[[int], None]
"""Called with the number of requests that were finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRun:
    """One run over all requests."""

    tokens: dict[str, tuple[int, ...]]
    """Emitted token IDs by request."""
    ttft_s: tuple[float, ...] = ()
    """Seconds from the start of the run to each request's first token, its wait for a slot
    included."""
    request_stats: dict[str, RequestStats] = field(default_factory=dict)
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

    def totals(self) -> dict[str, Any]:
        """Return the totals as `specdec generate --stats` writes them."""
        return run_stats(self.stats, num_requests=len(self.tokens), seconds=self.seconds)

    def num_different(self, plain: TimedRun) -> int:
        """Return the number of requests whose tokens differ from those of plain decoding."""
        return sum(self.tokens.get(name) != ids for name, ids in plain.tokens.items())


def decode(
    target: CachedModel,
    draft: CachedModel | None,
    config: SchedulerConfig,
    requests: Sequence[Request],
    report: Report,
    algorithm: AlgorithmName = AlgorithmName.EXSPEC,
    place: str = "",
) -> TimedRun:
    """Decode all requests and leave the models' caches empty.

    Raises SpecdecError if a request fails. Its message begins with `place`.
    """
    engine = Engine(target, draft, config=config, algorithm=algorithm)
    tokens: dict[str, tuple[int, ...]] = defaultdict(tuple)
    first_s: dict[str, float] = {}
    request_stats: dict[str, RequestStats] = {}
    started = time.perf_counter()
    for event in engine.generate(requests):
        if event.token_ids:
            first_s.setdefault(event.request_id, time.perf_counter() - started)
        tokens[event.request_id] += event.token_ids
        if event.finish_reason is FinishReason.ERROR:
            raise SpecdecError(f"{place}request {event.request_id} failed: {event.error}")
        if event.finish_reason is not None:
            request_stats[event.request_id] = event.stats or RequestStats()
            report(1)
    seconds = time.perf_counter() - started
    for model in (target, draft):
        assert model is None or model.num_free_blocks == model.num_blocks, "a slot was not freed"
    return TimedRun(
        tokens=dict(tokens),
        ttft_s=tuple(first_s.values()),
        request_stats=request_stats,
        stats=engine.stats,
        seconds=seconds,
    )
