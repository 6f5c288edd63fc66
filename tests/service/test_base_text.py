"""The very serveConfigV2 of k8s/base, deployed as the operator does it, answers both protocols."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deployments.demo.models import is_pulled
from tests.manifests import tree
from tests.manifests.checks.objects import Objects
from tests.service import deployed_text

DEMO = "smollm2-135m"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.skipif(not is_pulled(DEMO), reason=f"run `specdec models pull {DEMO}`"),
]


@pytest.fixture(scope="module")
def may_have_namespaces() -> None:
    command = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "true"]
    if shutil.which(command[0]) is None or subprocess.run(command).returncode:
        pytest.skip("no namespaces of our own here: the text's ports may be somebody else's")


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short name: Ray makes sockets in it."""
    with tempfile.TemporaryDirectory(prefix="text-") as name:
        yield Path(name)


@pytest.mark.usefixtures("may_have_namespaces")
def test_the_text_of_the_base_starts_the_service(folder: Path) -> None:
    """On a Ray with the environment of the base's pods and a token, as KubeRay hands them one."""
    base = Objects(tree.rendered("base"))
    text = folder / "serve_config.yaml"
    text.write_text(base.service["spec"]["serveConfigV2"])
    (environment,) = (one["data"] for one in base.of("ConfigMap"))
    (group,) = base.cluster["workerGroupSpecs"]
    command = deployed_text.in_namespaces(text, int(group["rayStartParams"]["num-cpus"]))
    sources = os.pathsep.join(str(tree.ROOT / source) for source in (".", "proto"))
    tokens = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a token of the tests"}
    output = subprocess.run(
        command,
        env=os.environ | environment | tokens | {"PYTHONPATH": sources},
        capture_output=True,
        text=True,
    )
    assert output.returncode == 0, output.stderr + text.with_suffix(".log").read_text()
    answers = json.loads(output.stdout.splitlines()[-1])
    assert "Paris" in answers["http"]["text"]
    assert answers["http"]["ids"] == answers["grpc"]["ids"] == answers["grpc"]["streamed"]
    assert answers["grpc"]["roles"] == ["target"]
