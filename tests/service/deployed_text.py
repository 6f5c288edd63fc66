"""Deploys a serveConfigV2 to a Ray of its own, asks it over both protocols, prints the answers.

It is run as the first process of a network and a process namespace (`in_namespaces`): the ports are
the text's own, whoever else has them, and nothing outlives it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from deployments.cli.serve import START_WAITS
from specdec.v1 import generation_pb2 as pb
from specdec.v1 import generation_pb2_grpc as pb_grpc

QUESTION = {"role": "user", "content": "What is the capital of France?"}
_BIN = Path(sys.executable).parent
_DASHBOARD, _HTTP = "http://127.0.0.1:8265", "http://127.0.0.1:8000"
_LIMIT_S = 240.0


def in_namespaces(text: Path, num_cpus: int) -> list[str]:
    """The command that runs this file on a text."""
    inner = f'ip link set lo up && exec "{sys.executable}" -m {__name__} "{text}" {num_cpus}'
    flags = ["--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return ["unshare", *flags, "sh", "-c", inner]


def main(text: Path, num_cpus: int) -> None:
    log = text.with_suffix(".log").open("w")
    command = [str(_BIN / "ray"), "start", "--head", "--block", "--disable-usage-stats"]
    command += ["--node-ip-address", "127.0.0.1", "--dashboard-host", "127.0.0.1"]
    command += ["--num-cpus", str(num_cpus), "--object-store-memory", "100000000"]
    command += ["--temp-dir", str(text.parent / "ray")]
    # A busy machine takes its time to start the first process.
    patient = os.environ | START_WAITS
    subprocess.Popen(command, env=patient, stdout=log, stderr=log)
    deadline = time.monotonic() + _LIMIT_S
    _until(lambda: _answers(_DASHBOARD), "the dashboard does not answer", deadline)
    deploy = [str(_BIN / "serve"), "deploy", str(text), "--address", _DASHBOARD]
    subprocess.run(deploy, stdout=log, stderr=log, check=True)
    _until(lambda: _answers(_HTTP + "/ready"), "the service is not ready", deadline)
    print(json.dumps({"http": _ask_http(), "grpc": _ask_grpc()}))


def _until(condition: Callable[[], bool], otherwise: str, deadline: float) -> None:
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.5)


def _answers(url: str) -> bool:
    """With 200, or 401 of a dashboard that wants the token."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        return error.code == 401
    except OSError:
        return False


def _ask_http() -> Any:
    body = {"messages": [QUESTION], "max_tokens": 16, "temperature": 0, "return_token_ids": True}
    body["model"] = "smollm2-135m"
    request = urllib.request.Request(_HTTP + "/v1/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=120) as answer:
        (choice,) = json.load(answer)["choices"]
    return {"text": choice["message"]["content"], "ids": choice["token_ids"]}


def _ask_grpc() -> Any:
    message = pb.GenerateRequest(
        chat=pb.ChatMessages(messages=[pb.ChatMessage(**QUESTION)]),
        sampling=pb.SamplingParams(temperature=0, max_tokens=16),
    )
    with grpc.insecure_channel("127.0.0.1:9000") as channel:
        stub = pb_grpc.GenerationServiceStub(channel)
        answer = stub.GenerateOnce(message, timeout=120)
        streamed = [i for part in stub.Generate(message, timeout=120) for i in part.token_ids]
        status = stub.PoolStatus(pb.PoolStatusRequest(), timeout=20)
    roles = sorted(replica.role for replica in status.replicas)
    return {
        "text": answer.text,
        "ids": list(answer.token_ids),
        "streamed": streamed,
        "roles": roles,
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
