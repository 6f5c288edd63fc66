"""How much of a prompt the target found cached travels from the replica to whoever asked."""

from __future__ import annotations

import pytest

from deployments.errors import RequestFailedError
from specdec_core.config import SchedulerConfig, SpecMethod, SpeculationConfig
from specdec_core.messages import ReplicaInfo, Role
from specdec_core.model import replica_info
from specdec_core.request import Request, RequestStats
from specdec_core.sampling_params import SamplingParams
from specdec_core.worker.replica import Replica
from tests.deployments.cell import Cell, cell, served
from tests.deployments.fake_replica import FakeReplica
from tests.paged_fake import PagedTokenModel

BLOCK = 4
PROMPT = tuple(range(1, 19))
IN_CHUNKS = SchedulerConfig(
    prefill_chunk=4, speculation=SpeculationConfig(method=SpecMethod.NGRAM, num_draft_tokens=2)
)


class CachingReplica(Replica):
    """The real one, over a model without weights whose blocks are real."""

    def __init__(self, *, enable: bool) -> None:
        self._served = PagedTokenModel(block_size=BLOCK, enable_prefix_caching=enable)
        super().__init__(self._served, Role.TARGET)

    def info(self, replica_id: str, incarnation: int) -> ReplicaInfo:
        return replica_info(
            self._served, Role.TARGET, replica_id, incarnation, model_digest="tokens"
        )


async def stats_of(parts: Cell, name: str, prompt: tuple[int, ...]) -> RequestStats:
    params = SamplingParams(max_tokens=5, temperature=0.0)
    request = Request(request_id=name, prompt_token_ids=prompt, params=params)
    events = [event async for event in parts.clients["client"].generate(request)]
    stats = events[-1].stats
    assert stats is not None
    return stats


async def test_a_request_hears_how_much_of_its_prompt_was_found() -> None:
    """Whole blocks, over all chunks of the prompt; the last token is always computed."""
    async with cell(IN_CHUNKS) as parts:
        parts.start_replica("t0", Role.TARGET, CachingReplica(enable=True))
        await parts.client()
        first = await stats_of(parts, "a", PROMPT)
        again = await stats_of(parts, "b", PROMPT)
        branch = await stats_of(parts, "c", (*PROMPT[:9], 30, 30, 30))
        other = await stats_of(parts, "d", tuple(reversed(PROMPT)))
    found = [one.num_cached_tokens for one in (first, again, branch, other)]
    assert found == [0, 16, 8, 0]


async def test_without_a_prefix_cache_nothing_is_found() -> None:
    async with cell(IN_CHUNKS) as parts:
        parts.start_replica("t0", Role.TARGET, CachingReplica(enable=False))
        await parts.client()
        told = [(await stats_of(parts, name, PROMPT)).num_cached_tokens for name in "ab"]
    assert told == [0, 0]


async def test_a_replica_that_found_more_than_it_was_fed_fails_the_request_alone() -> None:
    class Boasting(FakeReplica):
        def _verify(self, row, ids):  # type: ignore[no-untyped-def]
            return super()._verify(row, ids)._replace(num_matched=len(row.new_ids) + 1)

    async with served(SchedulerConfig(), target=Boasting(Role.TARGET)) as (_, client):
        params = SamplingParams(max_tokens=5, temperature=0.0)
        request = Request(request_id="a", prompt_token_ids=PROMPT, params=params)
        with pytest.raises(RequestFailedError, match="does not belong to the row"):
            await anext(client.generate(request))
