"""Labels of nodes: each process asks for its own, and nobody for any by default."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from ray.serve import Application

from deployments.app import build_app, coordinator_specs
from deployments.config.service import ServiceConfig

MODEL = {"model": "/models/target", "spec_model": "/models/draft"}


def selectors(config: ServiceConfig) -> dict[str, Any]:
    """Label selectors of the deployments by their names."""
    found: dict[str, Any] = {}

    def look(application: Application) -> None:
        bound = application._bound_deployment
        found[bound.name] = (bound.ray_actor_options or {}).get("label_selector")
        for argument in bound.init_args:
            if isinstance(argument, Application):
                look(argument)

    look(build_app(config.deployable()))
    return found


def test_by_default_every_node_will_do() -> None:
    config = ServiceConfig.of(**MODEL)
    assert not any(selectors(config).values())
    assert coordinator_specs(config)[0].node_labels == {}


def test_each_process_asks_for_its_own_nodes() -> None:
    config = ServiceConfig.of(
        **MODEL,
        cells=2,
        target_node_labels=({"gpu": "h100"}, {"gpu": "a100"}),
        draft_node_labels={"gpu": "in(l4, t4)"},
        ingress_node_labels={"gpu": "!h100"},
        coordinator_node_labels={"zone": "a"},
    )
    assert selectors(config) == {
        "ingress": {"gpu": "!h100"},
        "target": {"gpu": "h100"},
        "target-cell-1": {"gpu": "a100"},
        "draft": {"gpu": "in(l4, t4)"},
        "draft-cell-1": {"gpu": "in(l4, t4)"},
    }
    assert [spec.node_labels for spec in coordinator_specs(config)] == 2 * [{"zone": "a"}]


def test_one_entry_is_for_every_cell() -> None:
    config = ServiceConfig.of(**MODEL, cells=2, target_node_labels=({"gpu": "h100"},))
    found = selectors(config)
    assert found["target"] == found["target-cell-1"] == {"gpu": "h100"}


def test_entries_that_are_no_ones_cells_are_refused() -> None:
    with pytest.raises(ValidationError, match="2 entries for 3 cells"):
        ServiceConfig.of(**MODEL, cells=3, target_node_labels=({"a": "b"}, {"a": "c"}))


def test_they_travel_to_the_cluster() -> None:
    config = ServiceConfig.of(**MODEL, draft_node_labels={"gpu": "l4"})
    assert ServiceConfig.of(**config.deployable()).nodes.draft_node_labels == {"gpu": "l4"}
