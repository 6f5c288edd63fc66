"""The Ray nodes that coordinators run on or may run on, and Ray's options that choose one."""

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
"""Prefix of the actor name of a node's Serve proxy; the node's ID follows. Importing Serve's own
module for it would load all of Serve into this process."""
_TIMEOUT_S = 2.0


def node_options(spec: CoordinatorSpec) -> dict[str, Any]:
    """Return Ray's options that place a coordinator on the best node (see `best_node`). If that
    node is gone, any node with the labels will do."""
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
    """Return True if the coordinator's node matters. It does not for a single cell without node
    labels."""
    return spec.num_cells > 1 or bool(spec.node_labels)


def entry_nodes() -> set[str]:
    """Return the IDs of the nodes with a Serve proxy, which are those with a replica."""
    names = (actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True))
    return {name.removeprefix(PROXY) for name in names if name.startswith(PROXY)}


def nodes_for(spec: CoordinatorSpec) -> list[str]:
    """Return the IDs of the live nodes that the coordinator may run on."""
    return [
        node["NodeID"]
        for node in ray.nodes()
        if node["Alive"] and fits(spec.node_labels, node.get("Labels", {}))
    ]


def places_of(specs: Sequence[CoordinatorSpec]) -> dict[int, str]:
    """Return the node ID by cell, for the coordinators that exist and answer within
    `_TIMEOUT_S`."""
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
