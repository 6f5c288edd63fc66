"""The files of k8s/monitoring as they are committed, and what they name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import yaml

from deployments.observability.metrics.registry import ray_labels
from tests.dashboards.expressions import Labels, labels_of, selectors

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "k8s" / "monitoring"
BOARDS = sorted((FOLDER / "dashboards").glob("*.json"))


def rules() -> list[dict[str, Any]]:
    content = yaml.safe_load((FOLDER / "rules.yaml").read_text())
    return [rule for group in content["groups"] for rule in group["rules"]]


def recorded() -> Labels:
    return {rule["record"]: labels_of(rule["expr"]) for rule in rules() if "record" in rule}


def known() -> Labels:
    """What an expression may name."""
    return ray_labels() | dict(recorded())


def board_expressions() -> Iterator[str]:
    for path in BOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            yield from (target["expr"] for target in panel["targets"])


def named_on_ray() -> set[str]:
    """Every sample of Ray's port that a board or a rule reads."""
    expressions = [*board_expressions(), *(rule["expr"] for rule in rules())]
    parsed = [promql.parse(one.replace("$__rate_interval", "5m")) for one in expressions]
    names = {selector.name or "" for one in parsed for selector in selectors(one)}
    return names - set(recorded())
