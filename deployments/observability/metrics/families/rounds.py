"""Metrics of rounds: drafted and accepted tokens, shapes of groups, time of a round by stage."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from deployments.observability.metrics.families.reading import total, totals_by, value
from deployments.observability.metrics.histogram import BOUNDS_S
from deployments.observability.metrics.metric import Distribution, Kind, Metric, Point
from deployments.observability.metrics.round_stages import PASS
from deployments.wire.counter_names import EXPIRED, GRANTED, K_CAUSE
from specdec.v1 import generation_pb2 as pb
from specdec_core.messages import Role
from specdec_core.scheduler import DraftLengthReason

ROUND_STAGE = "specdec_round_stage_seconds"
ANSWER_STAGE = "specdec_answer_stage_seconds"
_GROUP_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


def _per_position(status: pb.PoolStatusResponse) -> Iterator[Point]:
    for position, count in enumerate(status.accepted_per_position):
        yield Point(count, (str(position),))


def _by_k(status: pb.PoolStatusResponse) -> Iterator[Point]:
    """Yield the number of rounds by K. A round that drafted K tokens counts at every position below
    K."""
    counters = status.counters
    undrafted = counters.get("num_sequence_rounds", 0) - counters.get("num_proposed_rounds", 0)
    yield Point(undrafted, ("0",))
    drafted = status.drafted_per_position
    for k, (least, more) in enumerate(zip_longest(drafted, drafted[1:], fillvalue=0), 1):
        yield Point(least - more, (str(k),))


def _group_sizes(status: pb.PoolStatusResponse) -> list[Point]:
    buckets = [0] * (len(_GROUP_SIZES) + 1)
    for size, count in enumerate(status.group_sizes):
        buckets[sum(bound < size for bound in _GROUP_SIZES)] += count
    num_rows = sum(size * count for size, count in enumerate(status.group_sizes))
    return [Point(Distribution(_GROUP_SIZES, tuple(buckets), num_rows))]


def _leases(status: pb.PoolStatusResponse) -> list[Point]:
    counts = dict.fromkeys(map(str, Role), 0)
    passes = {(role.value, stage.value) for role, stage in PASS.items()}
    for one in status.stages:
        if (one.role, one.stage) in passes:
            counts[one.role] += one.count
    return [Point(count, (role,)) for role, count in counts.items()]


def _round_stages(status: pb.PoolStatusResponse) -> Iterator[Point]:
    bounds = tuple(status.stage_bounds_s)
    for one in status.stages:
        if one.buckets:
            distribution = Distribution(bounds, tuple(one.buckets), one.sum_s)
            yield Point(distribution, (one.role, one.stage))


def _answer_stages(status: pb.PoolStatusResponse) -> Iterator[Point]:
    for one in status.stages:
        if not one.buckets:
            yield Point(Distribution((), (one.count,), one.sum_s), (one.stage,))


def _k_policy(status: pb.PoolStatusResponse) -> Iterator[Point]:
    """Yield the mean K, which every policy has, and the estimates of a policy that learns."""
    num_drafts = status.counters.get("num_proposed_rounds", 0)
    num_drafted = status.counters.get("num_drafted", 0)
    yield Point(num_drafted / num_drafts if num_drafts else 0.0, ("mean_k",))
    for name, figure in sorted(status.k_policy.items()):
        yield Point(figure, (name,))


def _count(name: str, counter: str, text: str, *, is_vllm: bool = False) -> Metric:
    return Metric(
        name=f"specdec_{name}",
        kind=Kind.COUNTER,
        text=text,
        read=total(counter),
        is_vllm=is_vllm,
    )


_SPECULATION = (
    _count(
        "spec_decode_num_drafts",
        "num_proposed_rounds",
        "Proposals that the target verified.",
        is_vllm=True,
    ),
    _count(
        "spec_decode_num_draft_tokens", "num_drafted", "Tokens that were drafted.", is_vllm=True
    ),
    _count(
        "spec_decode_num_accepted_tokens",
        "num_accepted",
        "Drafted tokens that were accepted.",
        is_vllm=True,
    ),
    Metric(
        name="specdec_spec_decode_num_accepted_tokens_per_pos",
        kind=Kind.COUNTER,
        text="Drafted tokens that were accepted, by position in the proposal.",
        read=_per_position,
        labels=("position",),
        is_vllm=True,
    ),
    Metric(
        name="specdec_draft_rounds",
        kind=Kind.COUNTER,
        text="Rounds by the number of drafted tokens that the target verified.",
        read=_by_k,
        labels=("k",),
    ),
    Metric(
        name="specdec_k_decisions",
        kind=Kind.COUNTER,
        text="Rounds by the cause of their number of drafted tokens; "
        "specdec_core/speculation/k_policy.py explains each cause.",
        read=totals_by(K_CAUSE, (cause.label for cause in DraftLengthReason)),
        labels=("cause",),
    ),
    Metric(
        name="specdec_k_policy",
        kind=Kind.GAUGE,
        text="Figures of the K policy: the mean K so far (mean_k), and the estimates of a "
        "policy that learns.",
        read=_k_policy,
        labels=("figure",),
    ),
)
_GROUPS = (
    _count("groups", "num_groups", "Groups: leases granted to targets."),
    _count(
        "equal_length_groups",
        "num_equal_length_groups",
        "Groups whose rows all had the same length.",
    ),
    _count(
        "split_groups",
        "num_split_groups",
        "Groups with one half of the sequences, while the other half was drafted.",
    ),
    Metric(
        name="specdec_group_size",
        kind=Kind.HISTOGRAM,
        text="Number of rows per group.",
        read=_group_sizes,
        unit="{row}",
        bounds=_GROUP_SIZES,
    ),
    Metric(
        name="specdec_group_wait_max_seconds",
        kind=Kind.GAUGE,
        text="Maximum time that a row has waited for its group so far.",
        read=value(lambda status: status.max_group_wait_s),
        unit="s",
    ),
    _count("sequence_rounds", "num_sequence_rounds", "Rounds, counted once per sequence."),
)
_LEASES = (
    Metric(
        name="specdec_leases_granted",
        kind=Kind.COUNTER,
        text="Leases that were granted, by role.",
        read=totals_by(GRANTED, Role),
        labels=("role",),
    ),
    Metric(
        name="specdec_leases_expired",
        kind=Kind.COUNTER,
        text="Leases that expired because they, or a lease before them, were not answered in time.",
        read=totals_by(EXPIRED, Role),
        labels=("role",),
    ),
    Metric(
        name="specdec_leases_answered",
        kind=Kind.COUNTER,
        text="Leases that were answered, by role.",
        read=_leases,
        labels=("role",),
    ),
    _count(
        "kv_misses",
        "num_kv_misses",
        "Rows whose replica did not cache the tokens that the scheduler assumed.",
    ),
    _count("stale_results", "num_stale_results", "Results that arrived too late and were ignored."),
    _count(
        "fenced_replicas",
        "num_fenced",
        "Times that a replica was fenced because its lease expired.",
    ),
)
_STAGES = (
    Metric(
        name=ROUND_STAGE,
        kind=Kind.HISTOGRAM,
        text="Time that a stage of a round takes, one observation per lease.",
        read=_round_stages,
        labels=("role", "stage"),
        unit="s",
        bounds=BOUNDS_S,
    ),
    Metric(
        name=ANSWER_STAGE,
        kind=Kind.SUMMARY,
        text="Time that an ingress spends on output chunks, by stage.",
        read=_answer_stages,
        labels=("stage",),
        unit="s",
    ),
)
METRICS = (*_SPECULATION, *_GROUPS, *_LEASES, *_STAGES)
