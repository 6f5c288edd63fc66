"""Deadlines: the ingress's own, and the pool's behind it, for an ingress that hangs."""

from __future__ import annotations

from typing import Any

import pytest

from deployments.config.client_limits import ClientLimits
from deployments.coordinator.driver import SchedulerDriver
from deployments.error_status import status_of
from deployments.errors import DeadlineError, FailureKind
from deployments.ingress.generation import GenerationService
from deployments.ingress.generation_request import GenerationRequest
from deployments.ingress.request_limits import RequestLimits
from specdec_core.config import SchedulerConfig, SpeculationConfig
from specdec_core.request import Request
from specdec_core.sampling_params import SamplingParams
from specdec_core.scheduler import Scheduler
from tests.deployments.cell import cell
from tests.deployments.fake_text import fake_text_model
from tests.deployments.outboxes import told


def asked(timeout_s: float | None) -> Request:
    return Request(
        request_id="a",
        prompt_token_ids=(1, 2),
        params=SamplingParams(max_tokens=5),
        client="key",
        timeout_s=timeout_s,
    )


def test_the_pool_ends_a_request_whose_ingress_never_reads() -> None:
    now = 0.0
    driver = SchedulerDriver(
        Scheduler(SchedulerConfig(), epoch=1),
        epoch=1,
        limits=ClientLimits(max_concurrent=1),
        clock=lambda: now,
    )
    outbox = driver.attach()
    driver.submit(outbox, asked(2.0), resume=False)
    driver.decide()
    assert driver.quotas.usage["key"].num_running == 1
    now = 2.0
    driver.decide()
    assert not driver.scheduler.has_work
    assert driver.quotas.usage["key"].num_running == 0
    ((_, failure),) = told(outbox)
    assert failure is not None
    assert failure.kind is FailureKind.DEADLINE


async def test_its_client_hears_the_same_as_from_the_ingress() -> None:
    """Over the stream, where nobody else looks at the time."""
    async with cell(SchedulerConfig()) as parts:
        client = await parts.client()
        with pytest.raises(DeadlineError, match=r"not finished within 0\.2 s") as refused:
            async for _ in client.generate(asked(0.2)):
                pass
        assert status_of(refused.value).http == 408
        assert not parts.driver.scheduler.has_work


@pytest.mark.parametrize(
    ("of_request", "of_server", "expected"),
    [(60.0, 30.0, 30.0), (20.0, 30.0, 20.0), (None, 30.0, 30.0), (20.0, None, 20.0), (None,) * 3],
)
def test_the_pool_is_told_the_sooner_of_the_requests_deadline_and_the_servers(
    of_request: float | None, of_server: float | None, expected: float | None
) -> None:
    pool: Any = type("NoPool", (), {"state": None, "new_request_id": lambda self: "new"})()
    service = GenerationService(
        fake_text_model(),
        pool,
        model_name="fake",
        speculation=SpeculationConfig(),
        limits=RequestLimits(timeout_s=of_server),
    )
    assert (
        service.prepare((5,), GenerationRequest(timeout_s=of_request)).request.timeout_s == expected
    )
