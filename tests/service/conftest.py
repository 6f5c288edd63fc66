"""One Ray for all service tests: two targets, two drafts, three ingresses over a tiny model.

In bfloat16, where near ties abound, with exact numerics, every finished request audited, and TLS
between the processes.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import httpx
import pytest
import torch

from benchmarks.harness.ports import free_port
from benchmarks.harness.processes import REPLICA, below, title_of
from deployments.app import coordinator_spec
from deployments.cli.serve import running_service
from deployments.config.service import ServiceConfig
from deployments.names import LogFormat
from specdec.v1 import generation_pb2 as pb
from specdec.v1 import generation_pb2_grpc as pb_grpc
from specdec_core import Engine, Request, SamplingParams
from specdec_core.config import KPolicyName, Numerics
from specdec_core.engine import AlgorithmName
from specdec_core.loading.loader import DType, LoadConfig
from tests.conftest import StartedAlone
from tests.deployments.tls.authority import Authority
from tests.service.collector import Collector
from tests.service.collector import collector as collecting
from tests.service.diagnosis import told
from tests.service.tiny_folder import save_tiny_llama

KEY = "the key of the tests"
LIMITED_KEY = "a key whose limit is reached"
METRICS_KEY = "a key that reads the figures of all keys"
MAX_CONCURRENT = 40
"""Of one key; more than any test but that of the limit has running at a time."""
NUM_INGRESSES = 3
"""Whatever a test shows, it shows for any way in."""
KV_CACHE_TOKENS = 2048
"""Of each replica: sixteen sequences of 128 tokens, so that tests can run a target out of it."""


class _CallDetails(NamedTuple):
    """What a client interceptor may change of a call."""

    method: str
    timeout: float | None
    metadata: tuple[tuple[str, str], ...]
    credentials: Any = None
    wait_for_ready: bool | None = None
    compression: Any = None


@dataclass(frozen=True)
class _Keyed(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    """Adds metadata to every call."""

    metadata: tuple[tuple[str, str], ...]

    def _add(self, proceed: Callable[..., Any], details: Any, request: Any) -> Any:
        own = (*(details.metadata or ()), *self.metadata)
        return proceed(_CallDetails(details.method, details.timeout, own), request)

    intercept_unary_unary = _add
    intercept_unary_stream = _add


@dataclass(frozen=True)
class Service:
    """A running service and the folder of its target."""

    config: ServiceConfig
    folder: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.config.port}"

    @property
    def grpc_address(self) -> str:
        return f"127.0.0.1:{self.config.grpc_port}"

    def headers(self, key: str = KEY) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"}

    def channel(self, key: str = KEY) -> grpc.Channel:
        """Every call on it carries the API key."""
        channel = grpc.insecure_channel(self.grpc_address)
        return grpc.intercept_channel(channel, _Keyed(tuple(self.headers(key).items())))

    def status(self) -> pb.PoolStatusResponse:
        with self.channel(METRICS_KEY) as channel:
            stub = pb_grpc.GenerationServiceStub(channel)
            answer: pb.PoolStatusResponse = stub.PoolStatus(pb.PoolStatusRequest(), timeout=20)
            return answer

    def until(self, condition: Callable[[pb.PoolStatusResponse], bool], limit_s: float) -> None:
        """Wait until the pool's status satisfies `condition`; a restarting coordinator is not."""
        deadline = time.monotonic() + limit_s
        while True:
            try:
                if condition(self.status()):
                    return
            except grpc.RpcError:
                pass
            assert time.monotonic() < deadline, f"not within {limit_s} s: {self.status()}"
            time.sleep(0.1)

    def until_complete(self, limit_s: float = 90) -> None:
        """All four replicas are registered."""
        self.until(lambda status: len(status.replicas) == 4, limit_s)

    def until_audited(self, limit_s: float = 240) -> None:
        """Every finished request was replayed and compared: what is left in the cell is nothing."""
        self.until(lambda status: status.audit.num_pending == 0, limit_s)

    def coordinator_pid(self) -> int:
        import ray

        handle = ray.get_actor(coordinator_spec(self.config).actor_name, namespace="specdec")
        pid: int = ray.get(handle.pid.remote())
        return pid

    def replica_pids(self, role: str) -> list[int]:
        """Processes of our own Ray, which are our children; a method behind `role`: those in it."""
        children = below(os.getpid())
        return [child.pid for child in children if title_of(child).startswith(REPLICA + role)]


class Oracle:
    """Plain decoding, one token per pass, in this process."""

    def __init__(self, folder: Path) -> None:
        torch.set_num_threads(1)  # as the replicas: exact numerics may depend on it
        self._engine = Engine.load(
            str(folder),
            load=LoadConfig(
                dtype=DType.BFLOAT16, kv_cache_tokens=KV_CACHE_TOKENS, numerics=Numerics.EXACT
            ),
            algorithm=AlgorithmName.AUTOREGRESSIVE,
        )

    def tokens(self, prompt: list[int], **params: object) -> list[int]:
        request = Request(
            request_id="oracle",
            prompt_token_ids=tuple(prompt),
            params=SamplingParams(**params),  # type: ignore[arg-type]
            end_token_ids=self._engine.end_token_ids,
        )
        return list(self._engine.tokens(request))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails tells of its service what CI would not show."""
    report = yield
    if report.failed and "service" in getattr(item, "funcargs", {}):
        report.sections.append(("the service", told()))
    return report


@pytest.fixture(scope="session")
def collector() -> Iterator[Collector]:
    """What the service's processes send. A trace begins with its client or not at all: tests that
    send none pay for none."""
    with collecting() as (kept, endpoint):
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = endpoint
        os.environ["OTEL_TRACES_SAMPLER"] = "parentbased_always_off"
        os.environ["OTEL_BSP_SCHEDULE_DELAY"] = "200"
        yield kept


@pytest.fixture(scope="session")
def service(
    tmp_path_factory: pytest.TempPathFactory, collector: Collector, started_alone: StartedAlone
) -> Iterator[Service]:
    os.environ["OMP_NUM_THREADS"] = "1"
    target = save_tiny_llama(tmp_path_factory.mktemp("target"))
    draft = save_tiny_llama(tmp_path_factory.mktemp("draft"), noise=0.01)
    tls = Authority().issue(tmp_path_factory.mktemp("tls"))
    config = ServiceConfig.of(
        coordinator_tls_cert=tls.cert,
        coordinator_tls_key=tls.key,
        coordinator_tls_ca=tls.ca,
        model=str(target),
        served_model_name="tiny",
        spec_model=str(draft),
        # The paths of a draft are what is tested: by goodput a tiny one would hardly be asked.
        spec_policy=KPolicyName.FIXED,
        dtype="bfloat16",
        numerics=Numerics.EXACT,
        audit_share=1.0,
        kv_cache_tokens=KV_CACHE_TOKENS,
        torch_threads=1,
        target_replicas=2,
        draft_replicas=2,
        target_num_cpus=0.5,
        draft_num_cpus=0.5,
        ingress_replicas=NUM_INGRESSES,
        max_ingress_replicas=NUM_INGRESSES,
        api_keys=(KEY, LIMITED_KEY),
        metrics_api_key=METRICS_KEY,
        max_concurrent_per_key=MAX_CONCURRENT,
        log_format=LogFormat.JSON,
        stream_keep_alive_s=0.5,
        port=free_port(),
        grpc_port=free_port(),
        graceful_shutdown_s=5,
    )
    with started_alone(running_service(config, threading.Event())):
        started = Service(config, target)
        started.until_complete()
        yield started


@pytest.fixture(scope="session")
def oracle(service: Service) -> Oracle:
    return Oracle(service.folder)


@pytest.fixture
def http(service: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.url, timeout=120, headers=service.headers()) as client:
        yield client


@pytest.fixture
def stub(service: Service) -> Iterator[pb_grpc.GenerationServiceStub]:
    with service.channel() as channel:
        yield pb_grpc.GenerationServiceStub(channel)
