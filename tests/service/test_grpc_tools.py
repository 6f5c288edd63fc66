"""Unpatched gRPC tools against a running service: grpc-health-probe, grpcurl and ghz."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.service.conftest import KEY, Service

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]

GENERATION = "specdec.v1.GenerationService"
HEALTH = "grpc.health.v1.Health"
TOOLS = {
    "grpc-health-probe": "github.com/grpc-ecosystem/grpc-health-probe@v0.4.63",
    "grpcurl": "github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4",
    "ghz": "github.com/bojand/ghz/cmd/ghz@v0.93.0",
}
REQUEST = {"prompt": "x", "sampling": {"temperature": 0, "max_tokens": 8, "ignore_eos": True}}


def go() -> str | None:
    return shutil.which("go", path=f"{os.environ['PATH']}:/usr/local/go/bin")


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tools, built by `go install`."""
    if (command := go()) is None:
        pytest.skip("Go is not installed")
    folder = tmp_path_factory.mktemp("go-tools")
    for package in TOOLS.values():
        environment = os.environ | {"GOBIN": str(folder), "GOFLAGS": "-p=1"}
        built = subprocess.run(
            [command, "install", package], env=environment, capture_output=True, text=True
        )
        if "dial tcp" in built.stderr:
            pytest.skip(f"the Go module proxy is not reachable: {built.stderr[-200:]}")
        assert built.returncode == 0, built.stderr
    return folder


def ran(tools: Path, *command: str) -> subprocess.CompletedProcess[str]:
    name, *arguments = command
    done = subprocess.run([tools / name, *arguments], capture_output=True, text=True, timeout=60)
    print(f"$ {' '.join(command)}\n{done.stdout}{done.stderr}")
    return done


def output(tools: Path, *command: str) -> str:
    done = ran(tools, *command)
    assert done.returncode == 0, done.stderr
    return done.stdout


def grpcurl(tools: Path, service: Service, *words: str, data: dict[str, Any] | None = None) -> str:
    options = ("-plaintext", "-H", f"authorization: Bearer {KEY}", "-d", json.dumps(data or {}))
    return output(tools, "grpcurl", *options, service.grpc_address, *words)


@pytest.mark.parametrize("arguments", [(), (f"-service={GENERATION}",)])
def test_grpc_health_probe_finds_it_serving(
    tools: Path, service: Service, arguments: tuple[str, ...]
) -> None:
    done = ran(tools, "grpc-health-probe", f"-addr={service.grpc_address}", *arguments)
    assert done.returncode == 0
    assert "status: SERVING" in done.stdout + done.stderr


def test_grpc_health_probe_fails_for_an_unknown_service(tools: Path, service: Service) -> None:
    done = ran(
        tools, "grpc-health-probe", f"-addr={service.grpc_address}", "-service=specdec.v1.Other"
    )
    assert done.returncode != 0
    assert "NotFound" in done.stdout + done.stderr


def test_grpcurl_lists_and_describes(tools: Path, service: Service) -> None:
    assert {GENERATION, HEALTH} <= set(grpcurl(tools, service, "list").split())
    for symbol in (GENERATION, f"{GENERATION}.Generate", f"{HEALTH}.Watch"):
        assert symbol in grpcurl(tools, service, "describe", symbol)


def test_grpcurl_calls(tools: Path, service: Service) -> None:
    checked = grpcurl(tools, service, f"{HEALTH}/Check")
    assert json.loads(checked) == {"status": "SERVING"}
    whole = json.loads(grpcurl(tools, service, f"{GENERATION}/GenerateOnce", data=REQUEST))
    assert len(whole["token_ids"]) == 8
    stream = grpcurl(tools, service, f"{GENERATION}/Generate", data=REQUEST)
    messages = json.loads("[" + stream.strip().replace("\n}\n{", "\n},\n{") + "]")
    assert [one for part in messages for one in part.get("token_ids", ())] == whole["token_ids"]
    assert messages[-1]["finish_reason"] == "FINISH_REASON_LENGTH"


@pytest.mark.parametrize(
    "call", [f"{GENERATION}.GenerateOnce", f"{GENERATION}/Generate", f"{HEALTH}.Check"]
)
def test_ghz_needs_no_proto_file(tools: Path, service: Service, call: str) -> None:
    data: dict[str, Any] = {} if HEALTH in call else REQUEST
    metadata = json.dumps({"authorization": f"Bearer {KEY}"})
    words = ("ghz", "--insecure", "--call", call, "--total", "20", "--concurrency", "4")
    words += ("--data", json.dumps(data), "--metadata", metadata, "--format", "json")
    report = json.loads(output(tools, *words, service.grpc_address))
    assert report["statusCodeDistribution"] == {"OK": 20}
