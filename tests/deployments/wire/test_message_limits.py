"""No request or answer that is allowed elsewhere is too large for the coordinator's port."""

from __future__ import annotations

import pytest

from deployments.wire.lease_codec import write_result
from deployments.wire.message_limits import most_message_bytes
from deployments.wire.request_codec import submit_to_pb
from specdec.v1 import coordination_pb2 as pb
from specdec_core.config import MAX_DRAFT_TOKENS, SchedulerConfig, SpeculationConfig
from specdec_core.logprobs import TokenLogprobs
from specdec_core.messages import GroupResult, RowResult
from specdec_core.request import Request
from specdec_core.sampling_params import MAX_LOGPROBS, SamplingParams

BODY = 60_000
LARGEST_ID = 2**31 - 1


@pytest.mark.parametrize("of_ids", [3, 11])
def test_whatever_a_body_may_say_can_be_submitted(of_ids: int) -> None:
    """Bytes that an id takes in JSON, its comma included: 3 for `10,`, 11 for the largest ids. The
    whole body is spent on one kind of field in turn, behind a text of as many ids as bytes."""
    count, first = BODY // of_ids, 10 if of_ids == 3 else LARGEST_ID
    ids = tuple(first for _ in range(count))
    biases = tuple((first - i if of_ids > 3 else i, 1.0) for i in range(BODY // (of_ids + 4)))
    for params in (
        SamplingParams(allowed_token_ids=ids),
        SamplingParams(stop_token_ids=ids),
        SamplingParams(bad_words=tuple((i,) for i in ids[: BODY // (of_ids + 2)])),
        SamplingParams(logit_bias=biases),
    ):
        request = Request(request_id="x", prompt_token_ids=(LARGEST_ID,) * BODY, params=params)
        message = pb.GenerateUp(submit=submit_to_pb(request, resume=False))
        # Without what resumed requests and the rest are given: the bound is right by its terms.
        assert message.ByteSize() <= most_message_bytes(SchedulerConfig(), BODY) - 17 * 2**20


def test_the_largest_context_can_be_submitted_again() -> None:
    half = (LARGEST_ID,) * 2**21
    params = SamplingParams(max_tokens=len(half))
    request = Request(request_id="x", prompt_token_ids=half, emitted_token_ids=half, params=params)
    message = pb.GenerateUp(submit=submit_to_pb(request, resume=True))
    assert message.ByteSize() <= most_message_bytes(SchedulerConfig(), 1024)


def test_the_largest_group_can_be_answered() -> None:
    config = SchedulerConfig(
        window=64,
        max_group_size=64,
        prefill_chunk=512,
        speculation=SpeculationConfig(num_draft_tokens=MAX_DRAFT_TOKENS),
    )
    entry = TokenLogprobs(-1.5, ((LARGEST_ID, -1.5),) * MAX_LOGPROBS)
    num_chosen = MAX_DRAFT_TOKENS + 1
    row = RowResult(
        sequence_id=2**63,
        cached_len=LARGEST_ID,
        tokens=(LARGEST_ID,) * num_chosen,
        num_accepted=num_chosen - 1,
        logprobs=(entry,) * num_chosen,
        prompt_logprobs=(entry,) * config.prefill_chunk,
    )
    answer = GroupResult(lease_id=2**63, epoch=2**63, replica_id="t", rows=(row,) * 64, seconds=1.0)
    message = pb.WorkUp()
    write_result(message.result, answer)
    size = message.ByteSize()
    assert size <= most_message_bytes(config, 1024)
    assert size > 2**22  # gRPC's own limit would not do
