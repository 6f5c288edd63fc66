"""The policy as Serve's controller calls it, and what Serve is told about it."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from ray import cloudpickle
from ray.serve._private.autoscaling_state import _resolve_policy_callable
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy
from ray.serve.schema import ServeDeploySchema

from deployments.app import build_app, num_cpus_needed, serve_config
from deployments.autoscaling.serve_options import POLICY
from deployments.config.scaling import Bounds, Thresholds
from deployments.config.service import ServiceConfig
from tests.autoscaling.signals import signals
from tests.autoscaling.test_signals import Point

NOW = 1000.0
SCALED = dict(
    model="m",
    spec_model="d",
    min_target_replicas=1,
    max_target_replicas=3,
    min_draft_replicas=0,
    max_draft_replicas=2,
    max_num_seqs=8,
    window=32,
    scale_up_delay_s=0,
)


@dataclass
class Context:
    """Of AutoscalingContext what the policy uses."""

    target_num_replicas: int = 1
    capacity_adjusted_min_replicas: int = 1
    capacity_adjusted_max_replicas: int = 3
    current_time: float | None = NOW
    total_num_requests: float = 0.0
    raw_metrics: dict[str, dict[str, list[Point]]] | None = field(default_factory=dict)


@dataclass(frozen=True)
class DeploymentId:
    name: str


def policy(**settings: Any) -> Any:
    """Made as Serve makes it: the module by value, the class from the text's arguments."""
    (application,) = serve_config(ServiceConfig.of(**{**SCALED, **settings}))["applications"]
    text = AutoscalingPolicy(**application["autoscaling_policy"])
    module = sys.modules[POLICY.partition(":")[0]]
    cloudpickle.register_pickle_by_value(module)
    try:
        text.set_serialized_policy_def(cloudpickle.dumps(module.PoolPolicy))
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    return _resolve_policy_callable(text)


def contexts(**found: Context) -> dict[DeploymentId, Context]:
    return {DeploymentId(name.replace("_", "-")): one for name, one in found.items()}


def reports(**changed: float) -> dict[str, dict[str, list[Point]]]:
    told = signals(**changed).as_stats()
    return {name: {"replica": [Point(NOW, value)]} for name, value in told.items()}


def test_numbers_go_by_what_targets_report_and_by_the_ingress_s_requests(
    caplog: pytest.LogCaptureFixture,
) -> None:
    crowd = reports(
        num_running=32.0, num_waiting=64.0, num_wanting=32.0, num_starved=32.0, num_drafts=0.0
    )
    asked = contexts(
        ingress=Context(total_num_requests=450.0),
        target=Context(raw_metrics=crowd),
        draft=Context(0, 0, 2),
    )
    with caplog.at_level(logging.INFO, "ray.serve"):
        numbers, state = policy()(asked)
    assert {one.name: number for one, number in numbers.items()} == {
        "ingress": 3,
        "target": 3,
        "draft": 1,
    }
    assert state == {}
    lines = [record.getMessage().split() for record in caplog.records]
    assert [line[1] for line in lines if line[0] == "autoscaling"] == [
        "ingress:",
        "target:",
        "draft:",
    ]


def test_cells_are_told_apart_by_the_names_of_their_deployments() -> None:
    asked = contexts(
        target=Context(raw_metrics=reports()),
        target_cell_1=Context(raw_metrics=reports(num_waiting=90.0)),
    )
    numbers, _ = policy(cells=2)(asked)
    assert {one.name: number for one, number in numbers.items()} == {
        "target": 1,
        "target-cell-1": 3,
    }


@pytest.mark.parametrize("metrics", [None, {}])
def test_without_reports_nothing_is_decided_for_a_cell(metrics: Any) -> None:
    numbers, _ = policy()(contexts(target=Context(2, raw_metrics=metrics)))
    assert numbers == {}


def test_what_the_policy_is_given_are_its_settings() -> None:
    config = ServiceConfig.of(
        **{**SCALED, "scale_down_delay_s": 7, "max_num_seqs": 5, "window": 20}
    )
    (application,) = serve_config(config)["applications"]
    aims = Thresholds(**application["autoscaling_policy"]["policy_kwargs"]["aims"])
    assert aims == Thresholds(window=20, max_group_size=5, up_delay_s=0.0, down_delay_s=7.0)


def test_the_default_settings_are_the_default_aims() -> None:
    config = ServiceConfig.of(model="m", min_target_replicas=1, max_target_replicas=2)
    (application,) = serve_config(config)["applications"]
    aims = Thresholds(**application["autoscaling_policy"]["policy_kwargs"]["aims"])
    pool = config.scheduler_config()
    assert aims == Thresholds(window=pool.window, max_group_size=pool.max_group_size)


def test_serve_takes_the_text() -> None:
    text = yaml.safe_load(yaml.safe_dump(serve_config(ServiceConfig.of(**SCALED))))
    schema = ServeDeploySchema.model_validate(text)
    assert schema.applications[0].autoscaling_policy["policy_function"] == POLICY


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_deployment_has_its_bounds_and_reports_each_second() -> None:
    app = build_app({**SCALED, "cells": 2})
    found = {app._bound_deployment.name: app._bound_deployment}
    for replicas in app._bound_deployment.init_args[2:]:
        found[replicas._bound_deployment.name] = replicas._bound_deployment
    scaled: dict[str, AutoscalingConfig] = {
        name: one._deployment_config.autoscaling_config for name, one in found.items()
    }
    bounds = {name: (one.min_replicas, one.max_replicas) for name, one in scaled.items()}
    of_cells = {"target": (1, 3), "target-cell-1": (1, 3), "draft": (0, 2), "draft-cell-1": (0, 2)}
    assert bounds == {"ingress": (1, 4), **of_cells}
    assert {one.metrics_interval_s for one in scaled.values()} == {1.0}
    assert {one.upscale_delay_s + one.downscale_delay_s for one in scaled.values()} == {0.0}


def test_without_bounds_numbers_are_fixed_and_there_is_no_policy() -> None:
    config = ServiceConfig.of(model="m", spec_model="d", target_replicas=2, draft_replicas=3)
    assert not config.autoscales
    assert "autoscaling_policy" not in serve_config(config)["applications"][0]
    (target, draft) = build_app(config.deployable())._bound_deployment.init_args[2:]
    assert target._bound_deployment.num_replicas == 2
    assert draft._bound_deployment.num_replicas == 3


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_first_number_keeps_the_bounds() -> None:
    config = ServiceConfig.of(model="m", min_target_replicas=2, max_target_replicas=4)
    (target,) = build_app(config.deployable())._bound_deployment.init_args[2:]
    assert target._bound_deployment._deployment_config.autoscaling_config.initial_replicas == 2
    assert config.scaling.target_bounds == Bounds(2, 4)


def test_bounds_of_drafts_alone_scale_where_there_is_a_draft_model() -> None:
    bounds = {"min_draft_replicas": 0, "max_draft_replicas": 2}
    assert ServiceConfig.of(model="m", spec_model="d", **bounds).autoscales
    assert not ServiceConfig.of(model="m", spec_method="ngram", **bounds).autoscales


def test_a_ray_of_one_s_own_has_room_for_the_most_replicas_and_threads_are_theirs() -> None:
    config = ServiceConfig.of(
        **SCALED, target_num_cpus=1, draft_num_cpus=0.5, max_ingress_replicas=1
    )
    assert num_cpus_needed(config) == 5  # 3 targets, 2 halves, a tenth
    assert config.threads_per_replica(11) == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_target_replicas": 1}, "require each other"),
        ({"max_draft_replicas": 1}, "require each other"),
        (
            {"min_target_replicas": 3, "max_target_replicas": 2},
            "max_target_replicas=2.*less than 3",
        ),
        ({"min_draft_replicas": 0, "max_draft_replicas": 0}, "max_draft_replicas=0.*less than 1"),
        ({"min_target_replicas": 0, "max_target_replicas": 2}, "greater than or equal to 1"),
        ({"scale_target_load": 0}, "greater than 0"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ServiceConfig.of(model="m", **settings)


def test_a_decision_that_fails_is_logged_and_leaves_the_numbers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = Context(raw_metrics={"target_load": {"replica": ["not a point"]}})  # type: ignore[list-item]
    with caplog.at_level(logging.ERROR, "ray.serve"):
        assert policy()(contexts(target=broken)) == ({}, {})
    assert "the numbers of replicas stay" in caplog.text
