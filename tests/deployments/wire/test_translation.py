"""What goes over the wire comes back the same, and both sides of a pair know every member."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.errors import Failure, FailureKind
from deployments.wire.lease_codec import (
    lease_from_pb,
    occupancy_to_pb,
    register_from_pb,
    register_to_pb,
    result_from_pb,
    write_lease,
    write_result,
)
from deployments.wire.request_codec import (
    event_from_pb,
    pack_ids,
    submit_from_pb,
    submit_to_pb,
    unpack_ids,
    write_event,
)
from specdec.v1 import coordination_pb2 as pb
from specdec_core.config import Numerics, SpecMethod
from specdec_core.grammar import GrammarKind, GrammarSpec
from specdec_core.kv_cache.spec import FullAttentionSpec
from specdec_core.logprobs import TokenLogprobs
from specdec_core.messages import (
    REPLICA_METRICS,
    GroupLease,
    GroupResult,
    LeaseRow,
    Occupancy,
    ReplicaInfo,
    Role,
    RowResult,
    RowStatus,
)
from specdec_core.request import FinishReason, Request, RequestStats, TokenEvent
from specdec_core.sampling_params import MAX_SEED, SamplingParams, SamplingRules
from specdec_core.step_times import StepTime

NEVER_BANNED = 2**31 - 1
large_messages = settings(max_examples=40)
"""Each has all fields and many rows."""
int32 = st.integers(0, NEVER_BANNED - 1)
uint64 = st.integers(0, 2**64 - 1)
ids = st.lists(int32, max_size=6).map(tuple)
grammars = st.none() | st.builds(GrammarSpec, st.sampled_from(GrammarKind), st.text(max_size=9))
free_params = st.builds(
    SamplingParams,
    temperature=st.floats(0, 100),
    top_k=int32,
    top_p=st.floats(0.001, 1),
    min_p=st.floats(0, 1),
    seed=st.integers(0, MAX_SEED),
    max_tokens=st.integers(10, 10_000),
    stop_token_ids=ids,
    ignore_eos=st.booleans(),
    presence_penalty=st.floats(-2, 2),
    frequency_penalty=st.floats(-2, 2),
    repetition_penalty=st.floats(0.1, 10),
    logit_bias=st.dictionaries(int32, st.floats(-100, 100), max_size=4).map(
        lambda bias: tuple(sorted(bias.items()))
    ),
    min_tokens=st.integers(0, 10),
    allowed_token_ids=ids.map(lambda some: (*some, NEVER_BANNED) if some else ()),
    bad_words=st.lists(st.lists(int32, min_size=1, max_size=3).map(tuple), max_size=3).map(tuple),
    num_logprobs=st.none() | st.integers(0, 20),
    num_prompt_logprobs=st.none() | st.integers(0, 20),
)
params = free_params | st.builds(
    replace, free_params, ignore_eos=st.just(False), min_tokens=st.just(0), grammar=grammars
)
rules = st.builds(
    SamplingRules, params, int32, st.frozensets(int32, max_size=3), st.text(max_size=5)
)
float32 = st.floats(width=32, allow_nan=False)


@st.composite
def logprobs(draw: st.DrawFn) -> tuple[TokenLogprobs, ...]:
    num_top = draw(st.integers(0, 3))
    top = st.lists(st.tuples(int32, float32), min_size=num_top, max_size=num_top).map(tuple)
    return tuple(draw(st.lists(st.builds(TokenLogprobs, float32, top), max_size=4)))


requests = st.builds(
    Request,
    request_id=st.text(min_size=1, max_size=8),
    prompt_token_ids=st.lists(int32, min_size=1, max_size=6).map(tuple),
    params=params,
    end_token_ids=st.frozensets(int32, max_size=3),
    emitted_token_ids=ids,
    resume_token_ids=st.lists(int32, max_size=1).map(tuple),
    speculation_enabled=st.booleans(),
    num_draft_tokens=st.none() | st.integers(0, 32),
    spec_method=st.none() | st.sampled_from(SpecMethod),
    priority=st.integers(-5, 5),
    client=st.text(max_size=5),
    timeout_s=st.none() | st.floats(0.001, 1e6),
    pinned_fingerprint=st.text(max_size=5),
    cache_salt=st.text(max_size=5),
)
rows = st.builds(
    LeaseRow,
    sequence_id=uint64,
    base_len=int32,
    base_hash=uint64,
    new_ids=ids,
    proposal=ids,
    num_choices=st.integers(0, 33),
    num_scored=st.sampled_from([0, 0, 7]),
    rules=st.none() | rules,
)
leases = st.builds(
    GroupLease,
    lease_id=uint64,
    epoch=uint64,
    replica_id=st.just("r"),
    role=st.sampled_from(Role),
    rows=st.lists(rows, max_size=4).map(tuple),
    ttl_s=st.floats(0, 100),
    min_confidence=st.floats(0, 1),
)
row_results = st.builds(
    RowResult,
    sequence_id=uint64,
    status=st.sampled_from(RowStatus),
    cached_len=int32,
    tokens=ids,
    num_accepted=st.integers(0, 32),
    logprobs=logprobs(),
    prompt_logprobs=logprobs(),
    error=st.text(max_size=5),
    num_matched=int32,
)
results = st.builds(  # whose recording is a part of the pass
    lambda share, **fields: GroupResult(recording_s=share * fields["seconds"], **fields),
    share=st.floats(0, 1),
    lease_id=uint64,
    epoch=uint64,
    replica_id=st.just("r"),
    rows=st.lists(row_results, max_size=4).map(tuple),
    seconds=st.floats(0, 10),
)
infos = st.builds(
    ReplicaInfo,
    replica_id=st.text(max_size=5),
    role=st.sampled_from(Role),
    incarnation=uint64,
    num_blocks=int32,
    kv_cache_spec=st.builds(FullAttentionSpec, int32, uint64.map(lambda size: size // 2)),
    max_model_len=int32,
    vocab_size=int32,
    model_digest=st.text(max_size=5),
    fingerprint=st.text(max_size=5),
    tile_rows=st.integers(0, 2**31 - 1),
    numerics=st.sampled_from([Numerics.EXACT, Numerics.FAST]),
    device=st.text(max_size=5),
    keeps_prefixes=st.booleans(),
    step_times=st.lists(
        st.builds(
            StepTime,
            st.integers(0, 99),
            st.integers(0, 99),
            st.floats(0, 10),
            st.integers(0, 99),
        ),
        max_size=3,
    ).map(tuple),
    max_num_seqs=st.integers(0, 2**31 - 1),
)


@given(ids)
def test_ids_are_little_endian_int32(token_ids: tuple[int, ...]) -> None:
    packed = pack_ids(token_ids)
    assert packed == b"".join(i.to_bytes(4, "little") for i in token_ids)
    assert unpack_ids(packed) == token_ids


@large_messages
@given(requests, st.booleans())
def test_requests_come_back(request: Request, resume: bool) -> None:
    wire = pb.Submit.FromString(submit_to_pb(request, resume=resume).SerializeToString())
    assert wire.resume is resume
    assert submit_from_pb(wire) == request


@large_messages
@given(leases)
def test_leases_come_back(lease: GroupLease) -> None:
    written = pb.WorkDown()
    write_lease(written.lease, lease)
    wire = pb.WorkDown.FromString(written.SerializeToString())
    assert wire.WhichOneof("kind") == "lease"
    assert lease_from_pb(wire.lease, "r") == lease


@large_messages
@given(results)
def test_results_come_back(result: GroupResult) -> None:
    written = pb.WorkUp()
    write_result(written.result, result)
    wire = pb.WorkUp.FromString(written.SerializeToString())
    assert wire.WhichOneof("kind") == "result"
    assert result_from_pb(wire.result, "r", max_cached_len=2**31, vocab_size=2**31) == result


@given(infos)
def test_registrations_come_back(info: ReplicaInfo) -> None:
    assert register_from_pb(register_to_pb(info)) == info


INFO = ReplicaInfo(
    replica_id="r",
    role=Role.TARGET,
    incarnation=1,
    num_blocks=9,
    kv_cache_spec=FullAttentionSpec(16, bytes_per_block=512),
    max_model_len=99,
    vocab_size=9,
    model_digest="m",
)


def test_a_replica_of_an_earlier_release_has_full_blocks() -> None:
    message = register_to_pb(INFO)
    message.ClearField("kv_cache_spec")
    assert register_from_pb(message).kv_cache_spec == FullAttentionSpec(16)


def test_a_coordinator_of_an_earlier_release_finds_the_block_size_where_it_was() -> None:
    assert register_to_pb(INFO).block_size == 16


def test_a_kind_of_cache_of_a_later_release_is_refused_by_name() -> None:
    message = register_to_pb(INFO)
    message.kv_cache_spec.kind = "recurrent"
    with pytest.raises(ValueError, match="unknown kind of KV cache 'recurrent'"):
        register_from_pb(message)


@given(
    st.none() | st.sampled_from(FinishReason),
    ids,
    st.sampled_from(FailureKind),
    logprobs(),
    logprobs(),
)
def test_events_come_back(
    reason: FinishReason | None,
    token_ids: tuple[int, ...],
    kind: FailureKind,
    reported: tuple[TokenLogprobs, ...],
    scored: tuple[TokenLogprobs, ...],
) -> None:
    stats = RequestStats(
        num_rounds=3,
        num_drafted=8,
        num_accepted=2,
        steps=((4, 0), (4, 2)),
        num_cached_tokens=5,
    )
    failure = Failure(
        kind=kind,
        message="no",
        retry_after_s=1.5,
        num_queued=3,
        max_queued=2,
        param="n",
        code="invalid_value",
    )
    is_failed = reason is FinishReason.ERROR
    event = TokenEvent(
        request_id="a",
        index=7,
        token_ids=token_ids,
        finish_reason=reason,
        stats=stats if reason else None,
        error="no" if is_failed else None,
        logprobs=reported,
        prompt_logprobs=scored,
        pinned_fingerprint="there",
    )
    wire = pb.TokenEvent()
    write_event(wire, event, failure if is_failed else None)
    back = event_from_pb(pb.TokenEvent.FromString(wire.SerializeToString()))
    assert back == (event, failure if is_failed else None)


@pytest.mark.parametrize(
    "shapes",
    [(0, 3, 0, 1), (0, 0, 3, 1), (0, 1, 2, 1), (0, -1, 1, 1), (0, 1, -1, 1), (0, 3, -1, 1)],
)
def test_a_lease_whose_shapes_are_not_those_of_its_ids_is_refused(
    shapes: tuple[int, int, int, int],
) -> None:
    wire = pb.GroupLease(
        role=pb.ROLE_TARGET,
        sequence_ids=[1],
        base_hashes=[1],
        shapes=pack_ids(shapes),
        token_ids=pack_ids((5, 6)),
    )
    with pytest.raises(ValueError, match="fewer ids than its shapes say"):
        lease_from_pb(wire, "t")


@pytest.mark.parametrize("num_tokens", [3, -1])
def test_a_result_whose_shapes_are_not_those_of_its_ids_is_refused(num_tokens: int) -> None:
    wire = pb.GroupResult(
        sequence_ids=[1],
        shapes=pack_ids((pb.ROW_STATUS_OK, 0, num_tokens, 0)),
        token_ids=pack_ids((5, 6)),
    )
    with pytest.raises(ValueError, match="fewer ids than its shapes say"):
        result_from_pb(wire, "t", max_cached_len=9, vocab_size=9)


_OCCUPANCY = len(dataclasses.fields(Occupancy))


@given(st.lists(st.integers(0, 2**31 - 1), min_size=_OCCUPANCY, max_size=_OCCUPANCY))
def test_occupancies_survive_the_wire(numbers: list[int]) -> None:
    names = [field.name for field in dataclasses.fields(Occupancy)]
    occupancy = Occupancy(**dict(zip(names, numbers, strict=True)))
    wire = pb.Occupancy.FromString(occupancy_to_pb(occupancy).SerializeToString())
    counts = {name: getattr(wire, name) for name in names if name not in REPLICA_METRICS}
    assert Occupancy(**counts, **wire.metrics) == occupancy


def test_every_field_of_the_core_records_is_carried() -> None:
    """A field added to a record and forgotten here would come back as its default.

    tests/deployments/test_sampling_fields.py covers SamplingParams.
    """
    is_background = 1  # made and read by the coordinator alone
    assert len(dataclasses.fields(Request)) == 14 + is_background
    assert len(dataclasses.fields(ReplicaInfo)) == 15
    assert len(LeaseRow._fields) == 8
    assert len(RowResult._fields) == 9
    compiled = 1  # does not travel
    assert len(dataclasses.fields(SamplingRules)) == 4 + compiled
    assert len(dataclasses.fields(Occupancy)) == 4 + len(REPLICA_METRICS)
    error_kind = 1  # told by the failure
    assert len(TokenEvent._fields) == 9 + error_kind
