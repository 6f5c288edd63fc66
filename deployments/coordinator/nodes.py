"""The Ray nodes that coordinators are on or may be on, and Ray's options that choose one."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import RayError

from deployments.coordinator.spec import NAMESPACE, CoordinatorSpec
from deployments.coordinator.spreading import best_node
from deployments.nodes.selectors import fits

_NODE_ID = "ray.io/node-id"
"""The label that Ray gives every node."""
_TIMEOUT_S = 2.0


def node_options(spec: CoordinatorSpec) -> dict[str, Any]:
    """Ray's options: on the node with the fewest other coordinators; where that one is gone, on
    any that has the labels."""
    labels = spec.node_labels
    if spec.num_cells == 1:
        return {"label_selector": labels or None}
    node = best_node(spec.cell, nodes_for(spec), places_of(spec.others))
    if node is None:
        return {"label_selector": labels or None}
    return {
        "label_selector": {**labels, _NODE_ID: node},
        "fallback_strategy": [{"label_selector": labels}],
    }


def nodes_for(spec: CoordinatorSpec) -> list[str]:
    """Ids of the live nodes that it may run on."""
    return [
        node["NodeID"]
        for node in ray.nodes()
        if node["Alive"] and fits(spec.node_labels, node.get("Labels", {}))
    ]


def places_of(specs: Sequence[CoordinatorSpec]) -> dict[int, str]:
    """Cell -> id of the node, of the coordinators that exist and answer soon."""
    asked: dict[int, Any] = {}
    for spec in specs:
        with contextlib.suppress(ValueError):
            handle: Any = ray.get_actor(spec.actor_name, namespace=NAMESPACE)
            asked[spec.cell] = handle.node_id.remote()
    answers = list(asked.values())
    done = ray.wait(answers, num_returns=len(answers), timeout=_TIMEOUT_S)[0] if answers else []
    places: dict[int, str] = {}
    for cell, answer in asked.items():
        if answer in done:
            with contextlib.suppress(RayError):
                places[cell] = ray.get(answer)
    return places


def own_node() -> str:
    node_id: str = ray.get_runtime_context().get_node_id()
    return node_id
