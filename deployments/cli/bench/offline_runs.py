"""One run of a cell: a new engine over models that are already loaded."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from deployments.cli.verify.cells import Cell
from deployments.text.detokenizer import Decode, IncrementalDetokenizer
from specdec_core.algorithms.protocol import AlgorithmStats
from specdec_core.config import SchedulerConfig, uses_draft_model
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.errors import SpecdecError
from specdec_core.loading.loader import LoadedPair
from specdec_core.request import FinishReason, Request

Report = Callable[[int], None]
"""Called with the number of requests that were finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineRun:
    """One run over all requests, which are queued together at the start."""

    tokens: dict[str, tuple[int, ...]]
    """Emitted token IDs by request."""
    ttft_s: tuple[float, ...]
    """Seconds from the start of the run to each request's first token, its wait for a slot
    included."""
    stats: AlgorithmStats
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        return self.stats.num_committed / self.seconds


def run_cell(
    models: LoadedPair,
    cell: Cell,
    config: SchedulerConfig,
    requests: Sequence[Request],
    report: Report,
) -> OfflineRun:
    """Decode all requests and leave the models' caches empty. Raises SpecdecError if a request
    fails."""
    draft = models.draft.model if models.draft and uses_draft_model(cell.point.method) else None
    target = models.target.model
    engine = Engine(target, draft, config=config, algorithm=AlgorithmName(cell.algorithm))
    tokens: dict[str, tuple[int, ...]] = defaultdict(tuple)
    first_s: dict[str, float] = {}
    started = time.perf_counter()
    for event in engine.generate(requests):
        if event.token_ids:
            first_s.setdefault(event.request_id, time.perf_counter() - started)
            tokens[event.request_id] += event.token_ids
        if event.finish_reason is FinishReason.ERROR:
            raise SpecdecError(f"{cell.name}: request {event.request_id} failed: {event.error}")
        if event.finish_reason is not None:
            report(1)
    seconds = time.perf_counter() - started
    for model in (target, draft):
        assert model is None or model.num_free_blocks == model.num_blocks, "a slot was not freed"
    return OfflineRun(
        tokens=dict(tokens), ttft_s=tuple(first_s.values()), stats=engine.stats, seconds=seconds
    )


def detokenise_seconds(tokens: Mapping[str, Sequence[int]], decode: Decode) -> float:
    """Return the seconds that a server spends to decode a run's token IDs to text, one by one.

    No run includes this time, because a run ends with token IDs.
    """
    started = time.perf_counter()
    for token_ids in tokens.values():
        detokenizer = IncrementalDetokenizer(decode)
        for token_id in token_ids:
            detokenizer.add(token_id)
    return time.perf_counter() - started
