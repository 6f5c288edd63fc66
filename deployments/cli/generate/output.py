"""Output of `specdec generate`: one record per line in input order, and the totals of a run."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from deployments.cli.generate.prompt_file import PromptLine
from specdec_core.algorithms.protocol import AlgorithmStats
from specdec_core.request import Request, RequestStats, TokenEvent

STAGES = ("draft", "verify", "align", "view", "stack", "schedule")


class OrderedWriter:
    """Writes records in key order, each as soon as all records of earlier keys are written."""

    def __init__(self, out: TextIO, keys: Iterable[int]) -> None:
        self._out = out
        self._expected = deque(keys)
        self._ready: dict[int, Sequence[dict[str, Any]]] = {}

    def write(self, key: int, records: Sequence[dict[str, Any]]) -> None:
        self._ready[key] = records
        while self._expected and self._expected[0] in self._ready:
            for record in self._ready.pop(self._expected.popleft()):
                self._out.write(json.dumps(record, ensure_ascii=False) + "\n")
            self._out.flush()


def answer_record(
    line: PromptLine, request: Request, token_ids: Sequence[int], text: str, last: TokenEvent
) -> dict[str, Any]:
    """Return one output line. `error` is present only if there was an error."""
    stats = last.stats or RequestStats()
    record = {
        "id": line.output_id,
        "prompt_token_ids": list(request.prompt_token_ids),
        "output_token_ids": list(token_ids),
        "text": text,
        "finish_reason": last.finish_reason,
        "num_rounds": stats.num_rounds,
        "num_drafted": stats.num_drafted,
        "num_accepted": stats.num_accepted,
    }
    return record if last.error is None else {**record, "error": last.error}


def run_stats(stats: AlgorithmStats, *, num_requests: int, seconds: float) -> dict[str, Any]:
    """Return the totals of a run. `seconds` does not include loading the models."""
    rounds, groups = stats.num_rounds, stats.num_groups
    return {
        "requests": num_requests,
        "tokens": stats.num_committed,
        "seconds": seconds,
        "tokens_per_second": stats.num_committed / seconds if seconds else 0.0,
        "rounds": rounds,
        "sequence_rounds": stats.num_sequence_rounds,
        "proposed_rounds": stats.num_proposed_rounds,
        "drafted": stats.num_drafted,
        "accepted": stats.num_accepted,
        "acceptance_rate": stats.num_accepted / stats.num_drafted if stats.num_drafted else 0.0,
        "mean_acceptance_length": stats.mean_acceptance_length,
        "acceptance_per_position": _acceptance_per_position(stats),
        "seconds_by_stage": {stage: stats.seconds.get(stage, 0.0) for stage in STAGES},
        "aligned_bytes": stats.aligned_bytes,
        "stacked_bytes": stats.stacked_bytes,
        "equal_length_group_share": stats.num_equal_length_groups / groups if groups else 0.0,
    }


def _acceptance_per_position(stats: AlgorithmStats) -> list[float]:
    """Return the share of accepted tokens at each position, over the rounds that drafted that
    far."""
    accepted = (*stats.accepted_per_position, *[0] * len(stats.drafted_per_position))
    return [
        num_accepted / num_drafted
        for num_accepted, num_drafted in zip(accepted, stats.drafted_per_position, strict=False)
    ]
