"""Wait until a deployed service answers, and report meanwhile what it waits for."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable

from deployments.app import APPLICATION
from deployments.config.service import ServiceConfig
from deployments.replica.start_stages import stages
from specdec_core.config import Numerics
from specdec_core.errors import SpecdecError

POLL_S = 0.2


class StartError(SpecdecError):
    """The service passed its checks and was started, but did not become ready."""


def wait_until_ready(
    config: ServiceConfig, stop: threading.Event, tell: Callable[[str], None]
) -> Numerics | None:
    """Return the targets' numerics, or None if `stop` was set before. Raises StartError."""
    deadline = time.monotonic() + config.ready_timeout_s
    while not stop.is_set():
        numerics = _numerics_when_ready(config)
        if numerics is not None:
            return numerics
        _raise_if_failed()
        at = waited_for()
        tell(at)
        if time.monotonic() > deadline:
            raise StartError(
                f"no answer within ready_timeout_s={config.ready_timeout_s:g} ({at}): raise it, or "
                "see the Ray logs"
            )
        stop.wait(POLL_S)
    return None


def waited_for() -> str:
    return ", ".join(stages(APPLICATION)) or "starting processes"


def reachable(host: str) -> str:
    return "127.0.0.1" if host in ("0.0.0.0", "::", "localhost") else host


def _numerics_when_ready(config: ServiceConfig) -> Numerics | None:
    """Return the targets' numerics once a target has registered and the gRPC port is open."""
    host = reachable(config.host)
    try:
        with urllib.request.urlopen(f"http://{host}:{config.port}/ready", timeout=2) as response:
            answer = json.load(response)
        with socket.create_connection((host, config.grpc_port), timeout=2):
            return Numerics(answer["numerics"])
    except (OSError, urllib.error.URLError):
        return None


def _raise_if_failed() -> None:
    from ray import serve

    application = serve.status().applications.get(APPLICATION)
    if application is None:
        return
    messages = [d.message for d in application.deployments.values() if d.message]
    for message in messages:
        if (refusal := refusal_in(message)) is not None:
            raise StartError(f"a replica cannot start: {refusal}")
    if application.status == "DEPLOY_FAILED":
        told = "; ".join(messages) or application.message
        raise StartError(f"the application failed to start: {told[-2000:]}")


def refusal_in(message: str) -> str | None:
    """Return our own code's refusal from the traceback that Serve shows of a constructor.

    Serve tries again. That can fix an accident but never a refusal.
    """
    found = re.findall(r"^specdec_core\.[\w.]+: (.*)", message, flags=re.MULTILINE | re.DOTALL)
    return found[-1].strip() if found else None
