"""Convert the stages' totals to messages of PoolStatus."""

from __future__ import annotations

from collections.abc import Iterator

from deployments.names import Part
from deployments.observability.metrics.ingress_times import IngressTimes
from deployments.observability.metrics.round_stages import StageHistograms
from specdec.v1 import generation_pb2 as pb


def stage_statuses(stages: StageHistograms, ingress: IngressTimes) -> Iterator[pb.StageStatus]:
    for (role, stage), found in stages.items():
        yield pb.StageStatus(
            role=role,
            stage=stage,
            count=sum(found.buckets),
            sum_s=found.sum_s,
            buckets=found.buckets,
        )
    for name, timer in (("detokenise", ingress.detokenise), ("respond", ingress.respond)):
        yield pb.StageStatus(
            role=Part.INGRESS, stage=name, count=ingress.num_pieces, sum_s=timer.seconds
        )
