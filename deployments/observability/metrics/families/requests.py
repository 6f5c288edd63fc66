"""Metrics of requests: how many, how they end, how long they take.

Names and meanings are vLLM's where vLLM has the metric. Where OpenTelemetry's GenAI conventions
have the metric, they are those of the conventions.
"""

from __future__ import annotations

from deployments.errors import FailureKind
from deployments.names import Part
from deployments.observability.metrics.families.reading import (
    kv_usage,
    observed,
    observed_count,
    total,
    totals_by,
    value,
)
from deployments.observability.metrics.metric import Kind, Metric, Point
from deployments.wire.counter_names import FAILED, FINISHED, REJECTED
from specdec.v1 import generation_pb2 as pb
from specdec_core.request import FinishReason

REJECTIONS = (FailureKind.QUEUE_FULL, FailureKind.CLIENT_LIMIT, FailureKind.INVALID_REQUEST)
FAILURES = (
    FailureKind.ROW_FAILED,
    FailureKind.POOL_FAILED,
    FailureKind.DEADLINE,
    FailureKind.INVALID_REQUEST,
)
REPLAY_DIVERGENCES = "specdec_replay_divergences"
NO_TARGET, CAPACITY = "no_target", "capacity"
INPUT, OUTPUT = "input", "output"

_FIRST_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_TOKEN_S = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_REQUEST_S = (
    *(0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0),
    *(50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
"""Bucket bounds of vLLM, in seconds, with finer ones where a round takes milliseconds."""
_RATES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_LENGTHS = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 12.0, 16.0)
# Bucket bounds of the conventions.
_GEN_AI_REQUEST_S = (
    *(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
)
_GEN_AI_FIRST_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1),
    *(0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
)
_GEN_AI_TOKEN_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_GEN_AI_TOKENS = tuple(4.0**power for power in range(14))


def _seconds(name: str, bounds: tuple[float, ...], text: str, otel_name: str = "") -> Metric:
    return Metric(
        name=name,
        kind=Kind.HISTOGRAM,
        text=text,
        read=observed(name, bounds),
        unit="s",
        bounds=bounds,
        otel_name=otel_name,
        is_vllm=not otel_name,
    )


def _waiting(status: pb.PoolStatusResponse) -> list[Point]:
    """Return points in which all waiting requests have one reason, because they are admitted in
    order."""
    is_served = any(
        one.role == Part.TARGET and not (one.is_fenced or one.is_draining)
        for one in status.replicas
    )
    counts = {NO_TARGET: 0, CAPACITY: 0, CAPACITY if is_served else NO_TARGET: status.num_waiting}
    return [Point(count, (reason,)) for reason, count in counts.items()]


def _prefix(name: str, field: str, text: str) -> Metric:
    """Return a metric with a series per target, which ends with the target. A sum over targets
    would fall when one leaves."""
    return Metric(
        name=name,
        kind=Kind.COUNTER,
        text=text,
        read=lambda status: [
            Point(getattr(one, field), (one.replica_id,))
            for one in status.replicas
            if one.role == Part.TARGET
        ],
        labels=("engine",),
        unit="{token}",
        is_vllm=True,
    )


_COUNTS = (
    Metric(
        name="specdec_num_requests_running",
        kind=Kind.GAUGE,
        text="Requests that are being decoded.",
        read=value(lambda status: status.num_running),
        unit="{request}",
        is_vllm=True,
    ),
    Metric(
        name="specdec_num_requests_waiting",
        kind=Kind.GAUGE,
        text="Requests that wait for admission.",
        read=value(lambda status: status.num_waiting),
        unit="{request}",
        is_vllm=True,
    ),
    Metric(
        name="specdec_num_requests_waiting_by_reason",
        kind=Kind.GAUGE,
        text="Requests that wait for admission, by reason: no_target if no target accepts "
        "requests, capacity if all are full.",
        read=_waiting,
        labels=("reason",),
        unit="{request}",
        is_vllm=True,
    ),
    Metric(
        name="specdec_kv_cache_usage_perc",
        kind=Kind.GAUGE,
        text="Share of the targets' KV blocks in use, 0 to 1.",
        read=value(kv_usage),
        unit="1",
        is_vllm=True,
    ),
    _prefix(
        "specdec_prefix_cache_queries",
        "num_prefix_queries",
        "Prompt tokens looked up in the prefix cache.",
    ),
    _prefix(
        "specdec_prefix_cache_hits", "num_prefix_hits", "Prompt tokens found in the prefix cache."
    ),
    Metric(
        name="specdec_num_preemptions",
        kind=Kind.COUNTER,
        text="Sequences that were preempted and lost their KV.",
        read=total("num_preemptions"),
        is_vllm=True,
    ),
    Metric(
        name="specdec_prompt_tokens",
        kind=Kind.COUNTER,
        text="Prompt tokens of requests that have started.",
        read=total("num_prompt_tokens"),
        unit="{token}",
        is_vllm=True,
    ),
    Metric(
        name="specdec_generation_tokens",
        kind=Kind.COUNTER,
        text="Tokens that were emitted.",
        read=total("num_committed"),
        unit="{token}",
        is_vllm=True,
    ),
)
_ENDS = (
    Metric(
        name="specdec_request_success",
        kind=Kind.COUNTER,
        text="Finished requests by reason, including abort and error.",
        read=totals_by(FINISHED, FinishReason),
        labels=("finished_reason",),
        unit="{request}",
        is_vllm=True,
    ),
    Metric(
        name="specdec_admission_rejections",
        kind=Kind.COUNTER,
        text="Requests that the coordinator refused. Ray Serve counts the requests that an "
        "ingress refuses.",
        read=totals_by(REJECTED, REJECTIONS),
        labels=("reason",),
        unit="{request}",
        is_vllm=True,
    ),
    Metric(
        name="specdec_failed_requests",
        kind=Kind.COUNTER,
        text="Requests that the pool ended with an error, by kind.",
        read=totals_by(FAILED, FAILURES),
        labels=("kind",),
        unit="{request}",
    ),
)
_TIMES = (
    _seconds(
        "specdec_time_to_first_token_seconds",
        _FIRST_S,
        "Time from receipt at the ingress to the first token. Request times count "
        "requests that ended with stop or length, as their ingress measured.",
    ),
    _seconds(
        "specdec_inter_token_latency_seconds",
        _TOKEN_S,
        "Time between consecutive output chunks of a request. Tokens committed in one "
        "round arrive together.",
    ),
    _seconds(
        "specdec_request_time_per_output_token_seconds",
        _TOKEN_S,
        "Mean time per output token after the first, one observation per request.",
    ),
    _seconds(
        "specdec_e2e_request_latency_seconds",
        _REQUEST_S,
        "Time from receipt at the ingress to the last token.",
    ),
    _seconds(
        "specdec_request_queue_time_seconds",
        _REQUEST_S,
        "Time from arrival at the coordinator to admission.",
    ),
    _seconds(
        "specdec_request_prefill_time_seconds",
        _REQUEST_S,
        "Time from receipt to the first token, without the queue time.",
    ),
    _seconds(
        "specdec_request_decode_time_seconds", _REQUEST_S, "Time from the first token to the last."
    ),
)
_ACCEPTANCE = tuple(
    Metric(
        name=name,
        kind=Kind.HISTOGRAM,
        text=text,
        read=observed(name, bounds),
        unit="1",
        bounds=bounds,
    )
    for name, bounds, text in (
        (
            "specdec_request_acceptance_rate",
            _RATES,
            "Accepted share of a request's drafted tokens. Requests without drafted "
            "tokens are not counted.",
        ),
        (
            "specdec_request_acceptance_length",
            _LENGTHS,
            "Mean number of tokens committed per proposal of a request, including the "
            "target's own token.",
        ),
    )
)
_GEN_AI = (
    _seconds(
        "gen_ai_server_request_duration_seconds",
        _GEN_AI_REQUEST_S,
        "Same as specdec_e2e_request_latency_seconds, with the buckets of the GenAI conventions.",
        "gen_ai.server.request.duration",
    ),
    _seconds(
        "gen_ai_server_time_to_first_token_seconds",
        _GEN_AI_FIRST_S,
        "Same as specdec_time_to_first_token_seconds, with the buckets of the GenAI conventions.",
        "gen_ai.server.time_to_first_token",
    ),
    _seconds(
        "gen_ai_server_time_per_output_token_seconds",
        _GEN_AI_TOKEN_S,
        "Same as specdec_request_time_per_output_token_seconds, with the buckets of the "
        "GenAI conventions.",
        "gen_ai.server.time_per_output_token",
    ),
    Metric(
        name="gen_ai_client_token_usage",
        kind=Kind.HISTOGRAM,
        text="Tokens of a request, by input and output.",
        read=observed("gen_ai_client_token_usage", _GEN_AI_TOKENS, (INPUT, OUTPUT)),
        labels=("gen_ai_token_type",),
        unit="{token}",
        bounds=_GEN_AI_TOKENS,
        otel_name="gen_ai.client.token.usage",
    ),
)
OBSERVED = (*_TIMES, *_ACCEPTANCE, *_GEN_AI)
"""Metrics observed once per request, at its ingress."""
COUNTED = (
    Metric(
        name=REPLAY_DIVERGENCES,
        kind=Kind.COUNTER,
        text="Replays after a failure that gave other tokens than the client has. Such "
        "requests are replayed again. With exact numerics this is a fault.",
        read=observed_count(REPLAY_DIVERGENCES),
        unit="{request}",
    ),
)
"""Metrics of events at an ingress that should not happen. They are sent as observations."""
METRICS = (*_COUNTS, *_ENDS, *OBSERVED, *COUNTED)
