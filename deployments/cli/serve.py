"""`specdec serve`: check, start or join Ray, deploy, report readiness, drain, clean up."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from deployments.app import (
    APPLICATION,
    coordinator_specs,
    gpus_of_ray,
    num_cpus_needed,
    serve_config,
)
from deployments.cli.deploying import deploy
from deployments.cli.preflight import check_own_node, checking_start
from deployments.cli.progress import waiting_line
from deployments.cli.wait_ready import POLL_S, reachable, wait_until_ready
from deployments.config.gpu_allocation import with_gpus
from deployments.config.service import ServiceConfig
from deployments.coordinator.spec import CoordinatorSpec
from deployments.demo.drafts import shipped_drafts
from deployments.demo.models import resolve_model
from deployments.ingress.auth import is_loopback
from deployments.names import LogFormat, Part
from deployments.observability.logs import begin_logs
from deployments.observability.process import ProcessName
from deployments.replica.start_stages import forget_stages
from deployments.runtime.memory import BURST_ALLOCATOR
from deployments.runtime.python_path import python_path
from deployments.text.answers.choosing import ChosenFormats
from deployments.text.tokenizer import answer_formats
from specdec_core.config import Numerics
from specdec_core.errors import InvalidRequestError


def run_service(config: ServiceConfig) -> None:
    """Serve until Ctrl-C or SIGTERM. Raises SpecdecError if the service cannot start."""
    if config.telemetry.log_format is LogFormat.JSON:
        begin_logs(ProcessName(role=Part.SERVE, id=str(os.getpid())), config.telemetry.log_format)
    stop = threading.Event()
    with running_service(config, stop) as numerics:
        if numerics is not None:
            warn_when_fast(config, numerics)
            formats = formats_of(config)
            if formats.problem is not None:
                print(f"warning: {formats.warning}", file=sys.stderr)
            print(ready_line(config, numerics, formats), flush=True)
        _wait_for(stop)
        print("draining", flush=True)


def _wait_for(stop: threading.Event) -> None:
    """Wait for `stop` in short intervals, between which the signal handler can run.

    The kernel may give a signal to any thread, including one of Ray's. That would not interrupt a
    long wait of this thread, which runs the handler.
    """
    while not stop.wait(POLL_S):
        pass


@contextmanager
def running_service(config: ServiceConfig, stop: threading.Event) -> Iterator[Numerics | None]:
    """Check, start or join Ray, and deploy. The service answers inside the body.

    Yields the numerics in which the service answers, or None if `stop` was set before it did.
    """
    joins = "RAY_ADDRESS" in os.environ
    with ExitStack() as started:
        with (
            checking_start(config, check_ports=not joins) as wait_for_models,
            waiting_line() as tell,
        ):
            warn_when_open(config)
            tell("starting Ray")
            started.enter_context(_ray(config, joins))
            wait_for_models()
            started.enter_context(_signals_set(stop))
            config = with_gpus(config, gpus_of_ray())
            forget_stages(APPLICATION)
            deploy(serve_config(config))
            specs = coordinator_specs(config)
            started.callback(_remove, specs)
            numerics = wait_until_ready(config, stop, tell)
        yield numerics
        _drain(specs, config.graceful_shutdown_s)


def formats_of(config: ServiceConfig) -> ChosenFormats:
    """Return the formats in which the ingress reads answers."""
    return answer_formats(
        resolve_model(config.model),
        revision=config.loading.revision,
        chat_template=config.loading.chat_template,
        tool_call_parser=config.tool_call_parser,
        reasoning_parser=config.reasoning_parser,
    )


def ready_line(config: ServiceConfig, numerics: Numerics, formats: ChosenFormats) -> str:
    host = reachable(config.host)
    body = {
        "model": config.model_name,
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "max_tokens": 32,
        "temperature": 0,
    }
    curl = f"curl -s {host}:{config.port}/v1/chat/completions -d '{json.dumps(body)}'"
    return (
        f"Ready: HTTP http://{host}:{config.port}  gRPC {host}:{config.grpc_port}  "
        f"model {config.model_name}  numerics {numerics}{_drafting(config)}  {formats}  "
        f"try: {curl}"
    )


def _drafting(config: ServiceConfig) -> str:
    """Return a hint on how to use the shipped draft, if there is one and it is not used."""
    if config.draft or not shipped_drafts(config.model):
        return ""
    return f"  speculation {config.method} (a draft model too: --draft-replicas 1)"


@contextmanager
def _signals_set(stop: threading.Event) -> Iterator[None]:
    """Drain on Ctrl-C or SIGTERM; a second signal ends immediately. Use inside `_ray`, because Ray
    sets its own handlers."""

    def on_signal(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    earlier = {number: signal.signal(number, on_signal) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def _ray(config: ServiceConfig, joins: bool) -> Iterator[None]:
    """Start our own Ray and end it afterwards, or join the one that RAY_ADDRESS names and leave it
    running."""
    prepare_environment()
    import ray

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    if joins:
        ray.init(**quiet)
    else:
        ray.init(
            address="local", num_cpus=num_cpus_needed(config), include_dashboard=False, **quiet
        )
    try:
        _check_nodes(config, joins)
        yield
    finally:
        # Nothing is deployed any more, and Serve's own processes end with a Ray of our own. After
        # `serve.shutdown`, Ray (2.60) prints an error about Serve's controller.
        ray.shutdown()


def _check_nodes(config: ServiceConfig, joins: bool) -> None:
    import ray

    nodes = ray.nodes()
    if not joins:
        check_own_node(config, nodes[0]["Labels"])
    num_nodes = sum(node["Alive"] for node in nodes)
    if num_nodes > 1 and is_loopback(config.host):
        raise InvalidRequestError(
            f"host={config.host} cannot be reached from the cluster's other {num_nodes - 1} nodes: "
            "use --host 0.0.0.0"
        )


_SERVE_SETTINGS = {
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
    "RAY_SERVE_USE_GRPC_BY_DEFAULT": "1",
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.5",
    "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "1",
    "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS": "1000",
    "RAY_SERVE_FORCE_STOP_UNHEALTHY_REPLICAS": "1",
}
"""Serve's throughput mode without its direct ingress, which listens on all interfaces.

An ingress and its router share one loop, with fewer hops to it. The controller looks five times
less often. Proxy, ingress and replicas hand their counts on once a second, not ten times. This is a
quarter of what each takes at rest, 2.6 ms a second. A small machine then has more left for the
target. A dead proxy is missed after three checks. A hung replica is not asked to end gracefully.
"""

GUARDED_EDGE = {
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "deployments.proxy.hooks:guard",
    "RAY_SERVE_GRPC_MAX_MESSAGE_SIZE": str(64 * 2**20),
    "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": str(64 * 2**20),
}
"""Limits of Serve's proxies on input of clients, and their answers when a replica has died.

By default the proxies accept messages of 2 GiB and endless headers, cut connections, and pass on no
answer of 4 MiB.
"""


START_WAITS = {
    "RAY_gcs_server_port_wait_time_s": "180",
    "RAY_raylet_start_wait_time_s": "180",
    "RAY_agent_register_timeout_ms": "180000",
    "RAY_worker_register_timeout_seconds": "180",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
}
"""Start timeouts of a Ray of our own.

By default its processes wait 30 s for each other, 60 s for a worker and 5 s for a proxy. Ray then
starts the proxy again. A slow disk takes longer to read their libraries for the first time.
"""

_NICENESS = {"RAY_worker_niceness": "0"}
"""Niceness of every worker of a Ray of our own.

Ray's default is 15. A process at 0 in the same group of processes would then come first. See
docs/decisions/0017-niceness-of-workers.md.
"""


def prepare_environment() -> None:
    """Set the environment before Ray is imported. Every process of a local Ray inherits it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_SERVE_LOG_TO_STDERR", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Otherwise gRPC logs every failed handshake, and strangers could fill the log.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    # Not set to join a Ray: with no Ray at the address, the command would wait as long.
    own = {} if "RAY_ADDRESS" in os.environ else START_WAITS | _NICENESS
    for name, value in (_SERVE_SETTINGS | GUARDED_EDGE | BURST_ALLOCATOR | own).items():
        os.environ.setdefault(name, value)
    os.environ["PYTHONPATH"] = python_path()
    warnings.filterwarnings("ignore", category=FutureWarning, module="ray")


def _drain(specs: Sequence[CoordinatorSpec], limit_s: float) -> None:
    """Wait for running requests, at most `limit_s`."""
    from deployments.coordinator import actor as coordinator

    deadline = time.monotonic() + limit_s
    while any(map(coordinator.num_live, specs)) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def _remove(specs: Sequence[CoordinatorSpec]) -> None:
    """Delete what was deployed, the detached coordinators included. The specifications are those of
    the start, because the file of API keys may have changed since."""
    from ray import serve

    from deployments.coordinator import actor as coordinator

    serve.delete(APPLICATION)
    for spec in specs:
        coordinator.end(spec)


def warn_when_open(config: ServiceConfig) -> None:
    if not is_loopback(config.host) and not config.keys.named:
        print(
            f"warning: {config.host} can be reached from other machines and no API key is set: "
            "use --api-key or SPECDEC_API_KEYS",
            file=sys.stderr,
        )


def warn_when_fast(config: ServiceConfig, numerics: Numerics) -> None:
    if config.loading.numerics is Numerics.AUTO and numerics is Numerics.FAST:
        print(
            "warning: numerics are fast on this machine with this model, so near ties "
            "may differ from plain decoding. The target's log names the operation that "
            "differs, or the cost of exact numerics",
            file=sys.stderr,
        )
