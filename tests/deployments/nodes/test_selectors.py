"""Ray's label selectors, and settings that the only node of a Ray of one's own cannot meet."""

from __future__ import annotations

from typing import Any

import pytest
import ray

from deployments.cli.preflight import check_own_node
from deployments.cli.serve import _check_nodes
from deployments.config.node_selectors import fits
from deployments.config.service import ServiceConfig
from specdec_core.errors import InvalidRequestError

MODEL = {"model": "/models/target", "spec_model": "/models/draft"}
HERE = {"ray.io/node-id": "8f", "ray.io/accelerator-type": "L4"}


@pytest.mark.parametrize(
    ("wanted", "has", "is_met"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("a", None, False),
        ("!a", "a", False),
        ("!a", "b", True),
        ("!a", None, True),
        ("in(a, b)", "b", True),
        ("in(a,b)", "c", False),
        ("in(a, b)", None, False),
        ("!in(a, b)", "b", False),
        ("!in(a, b)", "c", True),
        ("!in(a, b)", None, True),
        ("ab", "a", False),
    ],
)
def test_a_selector_is_met_as_ray_meets_it(wanted: str, has: str | None, is_met: bool) -> None:
    labels = {"other": "a"} if has is None else {"key": has, "other": "x"}
    assert fits({"key": wanted}, labels) is is_met
    assert fits({"key": wanted, "nowhere": "x"}, labels) is False


@pytest.mark.parametrize(
    "setting",
    [
        {"target_node_labels": ({"gpu": "h100"},)},
        {"draft_node_labels": {"gpu": "in(l4, t4)"}},
        {"ingress_node_labels": {"zone": "a"}},
        {"coordinator_node_labels": {"ray.io/accelerator-type": "H100"}},
    ],
)
def test_a_ray_of_ones_own_refuses_labels_that_its_node_lacks(setting: dict[str, Any]) -> None:
    """By the name of the setting, and with what to do."""
    (name,) = setting
    with pytest.raises(InvalidRequestError, match=rf"{name} requires a node .*RAY_ADDRESS"):
        check_own_node(ServiceConfig.of(**MODEL, **setting), HERE)


def test_what_its_node_meets_is_no_mistake() -> None:
    config = ServiceConfig.of(
        **MODEL,
        target_node_labels=({"ray.io/accelerator-type": "L4"},),
        coordinator_node_labels={"spot": "!true"},
    )
    check_own_node(config, HERE)
    check_own_node(ServiceConfig.of(**MODEL), {})


def test_labels_of_drafts_that_there_are_none_of_are_asked_for_by_nobody() -> None:
    check_own_node(ServiceConfig.of(model="/models/target", draft_node_labels={"a": "b"}), {})


def test_a_cluster_that_is_joined_may_get_such_nodes_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True, "Labels": HERE}])
    config = ServiceConfig.of(**MODEL, ingress_node_labels={"zone": "a"})
    _check_nodes(config, joins=True)
    with pytest.raises(InvalidRequestError, match="ingress_node_labels"):
        _check_nodes(config, joins=False)
