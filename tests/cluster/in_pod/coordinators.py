"""Runs in the head's pod: prints the address of the node of each coordinator, as JSON."""

from __future__ import annotations

import json

import ray

from deployments.coordinator.spec import NAMESPACE

ray.init(address="auto", log_to_driver=False, configure_logging=False)
addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
places = {}
for actor in ray.util.list_named_actors(all_namespaces=True):
    if actor["namespace"] == NAMESPACE:
        handle = ray.get_actor(actor["name"], namespace=NAMESPACE)
        places[actor["name"]] = addresses[ray.get(handle.node_id.remote(), timeout=10)]
print(json.dumps(places))
