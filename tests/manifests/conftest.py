"""What production renders to, and the operator's schema where it is at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from tests.conftest import shared_file
from tests.manifests import tree
from tests.manifests.checks.objects import Manifest


@pytest.fixture(scope="session")
def rayservice_schema() -> Manifest:
    """Of RayService v1; from $SPECDEC_RAYSERVICE_CRD or the data folder, else the test skips."""
    given = os.environ.get("SPECDEC_RAYSERVICE_CRD")
    path = Path(given) if given else shared_file("ray.io_rayservices.yaml")
    crd = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    (version,) = (one for one in crd["spec"]["versions"] if one["name"] == "v1")
    return dict(version["schema"]["openAPIV3Schema"])


@pytest.fixture(scope="session")
def production() -> list[Manifest]:
    return tree.rendered("production")
