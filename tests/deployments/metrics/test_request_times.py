"""What is observed of a request, beside the times at which its news came."""

from __future__ import annotations

import pytest

from deployments.observability.metrics import request_times
from deployments.observability.metrics.families.requests import OBSERVED
from deployments.observability.metrics.request_times import (
    IngressTimes,
    Observation,
    RequestWatch,
)
from specdec.v1 import coordination_pb2
from specdec.v1 import generation_pb2 as pb
from specdec_core.request import FinishReason, Request, RequestStats, TokenEvent
from specdec_core.sampling_params import SamplingParams

REQUEST = Request(request_id="r", prompt_token_ids=(1, 2, 3), params=SamplingParams())
STATS = RequestStats(num_drafted=8, num_accepted=6, steps=((4, 2), (4, 4)), queue_s=0.5)


def observed(
    monkeypatch: pytest.MonkeyPatch,
    received_s: list[float],
    reason: FinishReason = FinishReason.STOP,
    stats: RequestStats | None = STATS,
) -> list[Observation]:
    """Of a request that began at 100 s and had seven tokens in the end."""
    monkeypatch.setattr(request_times.time, "perf_counter", lambda: 100.0)
    watch = RequestWatch(REQUEST)
    for now_s in received_s:
        watch.receive(now_s)
    return watch.end(TokenEvent("r", 5, (8, 9), reason), reason, stats)


def by_name(found: list[Observation]) -> dict[str, list[float]]:
    told: dict[str, list[float]] = {}
    for name, value, kind in found:
        told.setdefault(f"{name}{kind}", []).append(value)
    return told


def test_every_time_is_that_of_the_news(monkeypatch: pytest.MonkeyPatch) -> None:
    found = by_name(observed(monkeypatch, [102.0, 103.0, 105.0]))
    assert found == {
        "specdec_time_to_first_token_seconds": [2.0],
        "gen_ai_server_time_to_first_token_seconds": [2.0],
        "specdec_e2e_request_latency_seconds": [5.0],
        "gen_ai_server_request_duration_seconds": [5.0],
        "specdec_request_queue_time_seconds": [0.5],
        "specdec_request_prefill_time_seconds": [1.5],
        "specdec_request_decode_time_seconds": [3.0],
        "specdec_inter_token_latency_seconds": [1.0, 2.0],
        "specdec_request_time_per_output_token_seconds": [0.5],
        "gen_ai_server_time_per_output_token_seconds": [0.5],
        "gen_ai_client_token_usageinput": [3],
        "gen_ai_client_token_usageoutput": [7],
        "specdec_request_acceptance_rate": [0.75],
        "specdec_request_acceptance_length": [4.0],
    }
    assert {name for name, _, _ in observed(monkeypatch, [102.0, 103.0])} == {
        metric.name for metric in OBSERVED
    }


def test_plain_decoding_has_no_acceptance(monkeypatch: pytest.MonkeyPatch) -> None:
    for stats in (None, RequestStats(queue_s=0.5)):
        names = by_name(observed(monkeypatch, [102.0], stats=stats))
        assert not any("acceptance" in name for name in names)


@pytest.mark.parametrize("reason", [FinishReason.ABORT, FinishReason.ERROR])
def test_who_was_not_served_to_the_end_is_not_observed(
    monkeypatch: pytest.MonkeyPatch, reason: FinishReason
) -> None:
    assert observed(monkeypatch, [102.0], reason) == []


def test_what_is_taken_is_told_once_and_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    ingress, coordinator = IngressTimes(), IngressTimes()
    for received_s in ([102.0, 103.0], [100.5, 109.0], [100.001]):
        ingress.observe(observed(monkeypatch, received_s))
        coordinator.add(ingress.take())
        assert not ingress.take().requests
    (found,) = (
        one for one in coordinator.requests() if one.name == "specdec_e2e_request_latency_seconds"
    )
    assert sum(found.buckets) == 3
    assert found.sum == pytest.approx(3.0 + 9.0 + 0.001)
    assert {(one.name, one.kind) for one in coordinator.requests()} >= {
        ("gen_ai_client_token_usage", "input"),
        ("gen_ai_client_token_usage", "output"),
    }


@pytest.mark.parametrize(
    "message",
    [
        pb.HistogramStatus(name="specdec_request_acceptance_rate", buckets=[1, 2]),
        pb.HistogramStatus(name="unheard_of", buckets=[1]),
    ],
)
def test_buckets_of_another_version_are_refused(message: pb.HistogramStatus) -> None:
    with pytest.raises((ValueError, LookupError)):
        IngressTimes().add(coordination_pb2.IngressTimes(requests=[message]))
