"""Targets of other bits take over between tokens and their news: the audit blames nobody."""

from __future__ import annotations

import pytest

from deployments.coordinator.audit import Auditor, Origin
from deployments.coordinator.connections import ConnectedReplica
from deployments.coordinator.driver import SchedulerDriver
from deployments.simulation.model_replica import ModelReplica
from specdec_core.config import Numerics, SchedulerConfig
from specdec_core.kv_cache.spec import FullAttentionSpec
from specdec_core.messages import ReplicaInfo, Role
from specdec_core.request import FinishReason, Request, RequestStats, TokenEvent
from specdec_core.sampling_params import SamplingParams
from specdec_core.scheduler import Scheduler, SendLease
from tests.deployments.observed import end_of, live
from tests.deployments.outboxes import taken

VOCAB_SIZE = 13


class Target:
    """An exact target of some bits, which answers when it is told to."""

    def __init__(self, driver: SchedulerDriver, bits: str) -> None:
        info = ReplicaInfo(
            replica_id=bits,
            role=Role.TARGET,
            incarnation=1,
            num_blocks=100,
            kv_cache_spec=FullAttentionSpec(4),
            max_model_len=64,
            vocab_size=VOCAB_SIZE,
            model_digest="model",
            fingerprint=bits,
            numerics=Numerics.EXACT,
        )
        self.driver = driver
        self.runner = ModelReplica(info)
        self.stream: ConnectedReplica = driver.register(info)

    def answer(self) -> None:
        """Carry out what it was sent."""
        while self.stream.outbox.has_items():
            for command in taken(self.stream.outbox) or []:
                if isinstance(command, SendLease):
                    result = self.runner.execute(command.lease, 0.0)
                    self.driver.on_result(self.stream, result, self.stream.occupancy)


def replay_all(driver: SchedulerDriver, target: Target) -> None:
    while driver.auditor.num_pending or driver.scheduler.has_work:
        driver.decide()
        target.answer()


@pytest.mark.parametrize("max_tokens", [1, 5])
def test_a_request_is_not_replayed_on_targets_that_came_before_its_news(max_tokens: int) -> None:
    """It ends with its first token, or is cancelled before the pool has decided anew."""
    pool = Scheduler(SchedulerConfig(), epoch=1)
    driver = SchedulerDriver(pool, epoch=1, audit_share=1.0, clock=lambda: 1.0)
    ingress = driver.attach()
    old = Target(driver, "old bits")
    params = SamplingParams(max_tokens=max_tokens, seed=3)
    request = Request(request_id="a", prompt_token_ids=(1, 2, 3), params=params)
    driver.submit(ingress, request, resume=False)
    driver.decide()
    old.answer()
    driver.leave(old.stream)
    new = Target(driver, "new bits")
    driver.abort(ingress, "a")
    driver.decide()
    replay_all(driver, new)
    counts = driver.auditor.counts
    assert counts.diverged.total() == 0
    assert counts.num_skipped == 1


def test_a_replay_decodes_anew_what_its_client_had_brought_back() -> None:
    auditor = Auditor(1.0, lambda: Origin(Numerics.FAST, "bits"))
    request = live(
        Request(
            request_id="r",
            prompt_token_ids=(1,),
            params=SamplingParams(max_tokens=3),
            resume_token_ids=(5, 6),
        )
    )
    last = TokenEvent("r", 0, (5, 6, 7), FinishReason.LENGTH, RequestStats())
    auditor.begin(request)
    auditor.event(request, last, 0.0)
    auditor.end(request, end_of(last))
    replay = auditor.next_replay()
    assert replay is not None
    assert replay.resume_token_ids == ()
