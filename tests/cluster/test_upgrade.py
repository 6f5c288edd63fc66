"""What `make test-cluster --former-manifests` applies, and when. No cluster."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import Mock

import pytest
import yaml

from tests.cluster import deployed, steps
from tests.cluster.deployed import NAMESPACE, Deployed
from tests.cluster.kubectl import Manifest
from tests.cluster.rehearsal import Rehearsal, StepError
from tests.manifests.tree import rendered, rendered_path

FORMER = "specdec-serve:0.1.0-cpu-former"


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {one["kind"] for one in rendered("rehearsal")}
    monkeypatch.setattr(deployed, "serves_kinds", lambda: kinds)


def former() -> Deployed:
    return Deployed(rendered_path("rehearsal"), FORMER)


def current() -> Deployed:
    return Deployed(rendered_path("rehearsal"))


def test_every_image_of_the_product_is_replaced_and_no_other() -> None:
    release = former()
    assert release.image == FORMER
    text, before = (yaml.safe_dump_all(one.objects) for one in (release, current()))
    assert current().image not in text.replace(FORMER, "")
    assert text.replace(FORMER, current().image) == before
    assert "image: redis:" in text


def heads(image: str) -> list[Manifest]:
    return [{"spec": {"containers": [{"image": image}]}}]


def test_a_rehearsal_of_an_upgrade_starts_the_former_release_and_ends_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    applied: list[str] = []

    def take(objects: Sequence[Manifest]) -> None:
        for one in objects:
            if one["kind"] == "RayService":
                head = one["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]["spec"]
                applied.append(head["containers"][0]["image"])

    def replaced(_: Rehearsal, objects: Sequence[Manifest]) -> dict[str, float]:
        take(objects)
        return {"moved_s": 1.0}

    monkeypatch.setattr(steps, "apply_objects", take)
    monkeypatch.setattr(steps, "_replaced", replaced)
    kubectl = Mock(namespace=NAMESPACE)
    kubectl.get.return_value = {"data": {"keys": ""}}
    kubectl.pods.side_effect = lambda _: heads(applied[-1])
    shared = Rehearsal(current(), kubectl, [], former=former())
    by_name = {step.name: step.run for step in steps.UPGRADE}
    by_name["apply"](shared)
    assert by_name["upgraded"](shared) == {"image": current().image, "moved_s": 1.0}
    assert by_name["back to the former release"](shared) == {"image": FORMER, "moved_s": 1.0}
    assert applied == [FORMER, current().image, FORMER]


def test_an_upgrade_that_leaves_the_former_image_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_replaced", lambda *_: {})
    kubectl = Mock()
    kubectl.pods.return_value = heads(FORMER)
    with pytest.raises(StepError, match="the head runs"):
        steps.upgraded(Rehearsal(current(), kubectl, [], former=former()))
