"""The stages' totals as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily, Metric, SummaryMetricFamily

from specdec.v1 import generation_pb2 as pb

ROUND_STAGE = "specdec_round_stage_seconds"
ANSWER_STAGE = "specdec_answer_stage_seconds"


def stage_metrics(status: pb.PoolStatusResponse) -> Iterator[Metric]:
    rounds = HistogramMetricFamily(
        ROUND_STAGE, "Where a round's time goes, by lease.", labels=["role", "stage"]
    )
    answers = SummaryMetricFamily(
        ANSWER_STAGE, "What an ingress spends on the pieces of answers.", labels=["stage"]
    )
    for found in status.stages:
        if found.buckets:
            buckets = _cumulative(status.stage_bounds_s, found.buckets)
            rounds.add_metric([found.role, found.stage], buckets, sum_value=found.sum_s)
        else:
            answers.add_metric([found.stage], found.count, found.sum_s)
    yield from (rounds, answers)


def _cumulative(bounds_s: Sequence[float], buckets: Sequence[int]) -> list[tuple[str, float]]:
    """As Prometheus wants them: how many took at most so long."""
    ends = [*(f"{bound:g}" for bound in bounds_s), "+Inf"]
    return list(zip(ends, accumulate(buckets), strict=True))
