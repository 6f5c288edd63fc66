"""One run of a cell over models that are already loaded."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from deployments.cli.timed_run import Report, TimedRun, decode
from deployments.cli.verify.cells import Cell
from deployments.text.detokenizer import Decode, IncrementalDetokenizer
from specdec_core.config import DRAFT_MODEL_METHODS, SchedulerConfig
from specdec_core.engine import AlgorithmName
from specdec_core.loading.loader import LoadedPair
from specdec_core.request import Request


def run_cell(
    models: LoadedPair,
    cell: Cell,
    config: SchedulerConfig,
    requests: Sequence[Request],
    report: Report,
) -> TimedRun:
    """Decode all requests as the cell says. Raises SpecdecError if a request fails."""
    loaded = models.draft if cell.point.method in DRAFT_MODEL_METHODS else None
    draft = loaded.model if loaded else None
    algorithm, place = AlgorithmName(cell.algorithm), f"{cell.name}: "
    return decode(models.target.model, draft, config, requests, report, algorithm, place)


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
