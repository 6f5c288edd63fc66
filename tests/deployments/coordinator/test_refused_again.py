"""A request that is refused when it is submitted again is not run on as its older attempt."""

from __future__ import annotations

from deployments.coordinator.driver import SchedulerDriver
from specdec_core.config import SchedulerConfig
from specdec_core.kv_cache.spec import FullAttentionSpec
from specdec_core.messages import ReplicaInfo, Role
from specdec_core.request import Request
from specdec_core.sampling_params import SamplingParams
from specdec_core.scheduler import Scheduler


def test_it_is_not_run_on() -> None:
    """Seed 3128: it was taken while there was no target, and its stream broke when one came."""
    driver = SchedulerDriver(Scheduler(SchedulerConfig(), epoch=1), epoch=1, clock=lambda: 1.0)
    params = SamplingParams(max_tokens=100)
    request = Request(request_id="a", prompt_token_ids=(1, 2, 3), params=params)
    driver.submit(driver.attach(), request, resume=False)
    driver.register(
        ReplicaInfo(
            replica_id="t",
            role=Role.TARGET,
            incarnation=1,
            num_blocks=4,
            kv_cache_spec=FullAttentionSpec(4),
            max_model_len=16,
            vocab_size=13,
            model_digest="model",
        )
    )
    driver.submit(driver.attach(), request, resume=True)
    assert driver.scheduler.status("a") is None
