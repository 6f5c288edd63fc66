"""The Ray nodes that coordinators are on or may be on, and Ray's options that choose one."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import RayError

from deployments.config.node_selectors import fits
from deployments.coordinator.node_placement import best_node
from deployments.coordinator.spec import NAMESPACE, CoordinatorSpec

_NODE_ID = "ray.io/node-id"
"""The label that Ray gives every node."""
PROXY = "SERVE_PROXY_ACTOR-"
"""What Serve calls the actor of a node's proxy, before the node's id. Its own module for it would
bring all of Serve into this process."""
_TIMEOUT_S = 2.0


def node_options(spec: CoordinatorSpec) -> dict[str, Any]:
    """Ray's options: on an entry with the fewest other coordinators; where that one is gone, on any
    node that has the labels."""
    labels = spec.node_labels
    if not chooses(spec):
        return {"label_selector": None}
    node = best_node(spec.cell, nodes_for(spec), places_of(spec.others), entry_nodes())
    if node is None:
        return {"label_selector": labels or None}
    return {
        "label_selector": {**labels, _NODE_ID: node},
        "fallback_strategy": [{"label_selector": labels}],
    }


def chooses(spec: CoordinatorSpec) -> bool:
    """Whether it matters where the coordinator is: not on a machine of its own."""
    return spec.num_cells > 1 or bool(spec.node_labels)


def entry_nodes() -> set[str]:
    """Ids of the nodes that Serve has a proxy on: those with a replica."""
    names = (actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True))
    return {name.removeprefix(PROXY) for name in names if name.startswith(PROXY)}


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
