"""Whether a node has the labels that a process asks for, by the words of Ray's label selectors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from deployments.config import ServiceConfig
from specdec_core.errors import InvalidRequestError

_VALUES = re.compile(r"^(!?)(?:(?:in)?\((.*)\)|(.*))$")


def fits(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """`value`, `!value`, `in(one, other)`, `!in(one, other)`; a missing label is no value."""
    return all(_is_met(wanted, labels.get(key)) for key, wanted in selector.items())


def _is_met(wanted: str, has: str | None) -> bool:
    found = _VALUES.match(wanted)
    assert found is not None, "it matches everything"
    not_, several, one = found.groups()
    values = {value.strip() for value in several.split(",")} if several is not None else {one}
    return (has in values) is not bool(not_)


def check_own_node(config: ServiceConfig, labels: Mapping[str, str]) -> None:
    """Of a Ray that is started for the service alone, whose only node has `labels`. Raises
    InvalidRequestError for a setting that asks for another node: it would be waited for in vain."""
    for name, selector in _asked(config):
        if not fits(selector, labels):
            raise InvalidRequestError(
                f"{name} asks for a node with {selector}, and the Ray that is started here has one "
                "node without it: leave the setting out, or start a Ray whose nodes have labels "
                "(`ray start --head --labels key=value`) and set RAY_ADDRESS=auto"
            )


def _asked(config: ServiceConfig) -> Iterator[tuple[str, Mapping[str, str]]]:
    for selector in config.target_node_labels:
        yield "target_node_labels", selector
    if config.num_draft_replicas:
        yield "draft_node_labels", config.draft_node_labels
    yield "ingress_node_labels", config.ingress_node_labels
    yield "coordinator_node_labels", config.coordinator_node_labels
