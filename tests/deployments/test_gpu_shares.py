"""The plain command on what GPUs there are: who asks Ray for how much, and what of its memory each
replica may take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import ray
import torch

from deployments.app import build_app, gpus_of_ray
from deployments.config.gpu_allocation import crowds, with_gpus
from deployments.config.service import ServiceConfig
from deployments.replica import gpu_memory
from deployments.replica.gpu_memory import memory_share
from deployments.replica.model_host import device_name
from specdec_core.errors import InvalidRequestError
from specdec_core.loading.memory import DeviceMemory
from specdec_core.messages import Role
from tests.models.folders import save_model

PAIR: dict[str, Any] = {"model": "Qwen/Qwen3-8B", "spec_model": "Qwen/Qwen3-0.6B"}
GPU = torch.device("cuda:0")


def asked(num_gpus: float, **settings: Any) -> tuple[float | None, float | None]:
    config = with_gpus(ServiceConfig.of(**PAIR | settings), num_gpus)
    return config.scaling.target_num_gpus, config.scaling.draft_num_gpus


@pytest.mark.parametrize(
    ("num_gpus", "settings", "expected"),
    [
        (0, {}, (None, None)),
        (1, {}, (0.5, 0.5)),
        (2, {}, (1, 1)),
        (8, {"target_replicas": 4, "draft_replicas": 2}, (1, 1)),
        (1, {"draft_replicas": 3}, (0.25, 0.25)),
        (1, {"target_num_gpus": 0.8}, (0.8, 0.2)),
        (1, {"draft_num_gpus": 0}, (1, 0)),
        (4, {"target_num_gpus": 0.75, "draft_num_gpus": 0.25}, (0.75, 0.25)),
        (4, {"device": "cpu"}, (None, None)),
        (4, {"device": "cuda:1"}, (None, None)),
    ],
)
def test_replicas_ask_for_what_there_is(
    num_gpus: float, settings: dict[str, Any], expected: tuple[float | None, float | None]
) -> None:
    assert asked(num_gpus, **settings) == expected


@pytest.mark.parametrize(
    ("num_gpus", "settings"),
    [(2, {"target_replicas": 2}), (1, {"target_replicas": 2}), (2, {"draft_replicas": 2})],
)
def test_too_few_gpus_are_refused_with_the_numbers(num_gpus: float, settings: Any) -> None:
    config = ServiceConfig.of(**PAIR | settings)
    targets, drafts = config.scaling.target_replicas, config.scaling.draft_replicas or 1
    numbers = f"{targets} target and {drafts} draft .* {num_gpus}\\. "
    with pytest.raises(InvalidRequestError, match=numbers):
        with_gpus(config, num_gpus)


def test_a_target_on_a_gpu_takes_long_prompts_at_once() -> None:
    config = ServiceConfig.of(**PAIR)
    assert config.scheduler_config().max_prefill_tokens == 256
    assert with_gpus(config, 1).scheduler_config().max_prefill_tokens == 8192


def test_without_gpus_a_configuration_stays_the_same_one() -> None:
    config = ServiceConfig.of(**PAIR)
    assert with_gpus(config, 0).version() == config.version()
    seen = with_gpus(config, 1)
    travelled = ServiceConfig.of(**seen.deployable())
    assert with_gpus(travelled, 8).version() == seen.version() != config.version()


def test_only_who_fits_on_one_gpu_shares_it() -> None:
    def of(**settings: Any) -> list[tuple[int, int]]:
        return [tuple(crowd) for crowd in crowds(ServiceConfig.of(**PAIR | settings))]

    halves = {"target_num_gpus": 0.5, "draft_num_gpus": 0.5}
    assert of(**halves) == [(0, 1), (1, 1)]
    assert of(**halves, target_replicas=2, draft_replicas=2) == [(0, 2), (1, 1), (2, 0)]
    assert of(target_num_gpus=1, draft_num_gpus=1) == [(0, 1), (1, 0)]
    assert of() == []


def test_a_pair_on_one_gpu_shares_its_memory_by_what_each_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither sees the other; together they take no more than one would."""
    total = 10 * 2**20
    memory = DeviceMemory(free=total, total=total)
    monkeypatch.setattr(gpu_memory.DeviceMemory, "now", lambda device: memory)
    folders = {"model": save_model(tmp_path / "t"), "spec_model": save_model(tmp_path / "d")}
    pair = with_gpus(ServiceConfig.of(**folders), 1)
    shares = [memory_share(pair, role, GPU) for role in (Role.TARGET, Role.DRAFT)]
    assert shares == [pytest.approx(0.45)] * 2, "equal models need as much"
    apart = with_gpus(ServiceConfig.of(**folders), 2)
    assert memory_share(apart, Role.TARGET, GPU) == 0.9
    said = pair.replaced(gpu_memory_utilization=0.3)
    assert memory_share(said, Role.DRAFT, GPU) == 0.3


def test_a_replica_without_a_gpu_leaves_those_that_it_sees_to_others() -> None:
    config = ServiceConfig.of(**PAIR, target_num_gpus=1, draft_num_gpus=0)
    assert device_name(config, Role.TARGET) == "auto"
    assert device_name(config, Role.DRAFT) == "cpu"
    assert device_name(ServiceConfig.of(device="cuda:1"), Role.TARGET) == "cuda:1"


def test_an_application_that_is_built_on_a_cluster_asks_for_its_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By Ray's logical ones; `specdec serve` need not run."""
    assert gpus_of_ray() == 0
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2.0, "GPU": 1.0})
    built = build_app(PAIR)
    _, _, *bound = built._bound_deployment.init_args
    options = [one._bound_deployment.ray_actor_options["num_gpus"] for one in bound]
    assert options == [0.5, 0.5]
