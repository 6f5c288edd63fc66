"""A real kubectl applies overlays, server-side, to an API server that takes no wrong object."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.manifests import tree
from tests.manifests.api_server import ApiServer, running
from tests.manifests.checks.objects import Manifest, name_of

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


@pytest.fixture
def server(rayservice_schema: Manifest) -> Iterator[ApiServer]:
    with running(rayservice_schema) as server:
        yield server


def apply(server: ApiServer, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["kubectl", f"--server={server.url}", "apply", "--server-side", "--validate=false"]
    environment = os.environ | {"HOME": str(home), "KUBECONFIG": str(home / "none")}
    return subprocess.run(
        [*command, *arguments], env=environment, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("name", [pytest.param("local", marks=pytest.mark.nightly), "production"])
def test_kubectl_applies_every_object(server: ApiServer, tmp_path: Path, name: str) -> None:
    applied = apply(server, tmp_path, "-k", str(tree.FOLDERS[name]))
    assert applied.returncode == 0, applied.stderr
    kept = [one for one in server.kept.values() if one]
    assert sorted(map(name_of, kept)) == sorted(map(name_of, tree.rendered(name)))


def test_a_wrong_object_is_refused_by_its_field(server: ApiServer, tmp_path: Path) -> None:
    spoiled = tree.rendered("local")
    (service,) = (one for one in spoiled if one["kind"] == "RayService")
    service["spec"]["rayClusterConfig"]["enableInTreeAutoscalling"] = True
    path = tmp_path / "spoiled.yaml"
    path.write_text(yaml.safe_dump_all(spoiled))
    applied = apply(server, tmp_path, "-f", str(path))
    assert applied.returncode != 0
    assert "enableInTreeAutoscalling" in applied.stderr
