"""k8s/rendered: what is committed is what kustomize makes, and no check finds anything wrong."""

from __future__ import annotations

import pytest

from tests.manifests import tree
from tests.manifests.checks.ending import ending_problems
from tests.manifests.checks.network import network_problems
from tests.manifests.checks.objects import Manifest, Objects
from tests.manifests.checks.operator import operator_problems
from tests.manifests.checks.pods import pod_problems
from tests.manifests.checks.schemas import schema_problems
from tests.manifests.checks.serving import serving_problems

every_folder = pytest.mark.parametrize("name", tree.FOLDERS)


@pytest.mark.parametrize("folder", tree.serve_config_folders(), ids=lambda folder: folder.name)
def test_serve_config_is_the_text_that_the_builder_writes(folder: tree.Path) -> None:
    text = (folder / "serve_config.yaml").read_text()
    assert text == tree.serve_config(folder), "run `make manifests`"


@every_folder
def test_settings_that_are_made_from_productions_are_up_to_date(name: str) -> None:
    folder = tree.FOLDERS[name]
    settings = tree.derived_settings(folder)
    if settings is not None:
        assert (folder / "service.yaml").read_text() == settings, "run `make manifests`"


@every_folder
def test_what_is_committed_is_what_kustomize_renders(name: str) -> None:
    if tree.kustomize_command() is None:
        pytest.skip("neither kubectl nor kustomize is installed")
    text = tree.rendered_path(name).read_text()
    assert text == tree.render(tree.FOLDERS[name]), "run `make manifests`"


@every_folder
def test_the_service_gets_the_text_of_its_folder(name: str) -> None:
    folder = tree.FOLDERS[name]
    if not (folder / "serve_config.yaml").is_file():
        folder = tree.FOLDERS["base"]
    text = (folder / "serve_config.yaml").read_text()
    assert Objects(tree.rendered(name)).service["spec"]["serveConfigV2"] == text


@every_folder
def test_every_object_has_the_form_of_its_kind(name: str) -> None:
    assert list(schema_problems(Objects(tree.rendered(name)), None)) == []


@every_folder
def test_the_operators_schema_takes_the_service(name: str, rayservice_schema: Manifest) -> None:
    assert list(schema_problems(Objects(tree.rendered(name)), rayservice_schema)) == []


@every_folder
def test_no_check_finds_anything_wrong(name: str) -> None:
    objects = Objects(tree.rendered(name))
    for problems in (
        operator_problems,
        network_problems,
        pod_problems,
        serving_problems,
        ending_problems,
    ):
        assert list(problems(objects)) == []


def test_the_environment_is_that_of_specdec_serve() -> None:
    from deployments.cli.serve import _SERVE_SETTINGS, GUARDED_EDGE
    from deployments.runtime.memory import BURST_ALLOCATOR

    environment = Objects(tree.rendered("base")).of("ConfigMap")[0]["data"]
    ours = _SERVE_SETTINGS | GUARDED_EDGE | BURST_ALLOCATOR
    assert ours.items() <= environment.items()


@pytest.mark.parametrize("name", ["gpu", "production"])
def test_models_are_downloaded_to_where_they_are_read(name: str) -> None:
    objects = Objects(tree.rendered(name))
    (script,) = objects.of("Job")[0]["spec"]["template"]["spec"]["containers"][0]["args"]
    for setting in ("model", "spec_model"):
        folder = objects.settings[setting]
        download = f"hf download Qwen/{tree.Path(folder).name} --local-dir {folder}\n"
        assert f"{download}touch {folder}.complete\n" in script


def test_the_download_is_gone_before_the_next_apply_would_change_it() -> None:
    """The template of a job cannot be changed, and every new image changes it."""
    for name in ("gpu", "production"):
        (job,) = Objects(tree.rendered(name)).of("Job")
        assert job["spec"]["ttlSecondsAfterFinished"] <= 600


def test_production_outlives_its_head_and_lets_nobody_in_by_default() -> None:
    objects = Objects(tree.rendered("production"))
    assert objects.cluster["gcsFaultToleranceOptions"]["redisPassword"]["valueFrom"]
    denied = objects.named("NetworkPolicy", "default-deny")
    assert denied is not None
    assert denied["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    covered = {
        pod.owner
        for pod in objects.ray_pods()
        for budget in objects.of("PodDisruptionBudget")
        if pod.is_selected(budget["spec"]["selector"])
    }
    assert covered == {"group entry", "group target-h100", "group target-a100"}


def test_coordinators_and_ingresses_are_never_on_spot_nodes() -> None:
    settings = Objects(tree.rendered("production")).settings
    for kind in ("coordinator_node_labels", "ingress_node_labels"):
        assert settings[kind] == {"specdec.io/nodes": "entry"}
