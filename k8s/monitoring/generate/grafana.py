"""Dashboards in the format that Grafana imports."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from deployments.observability.metrics.registry import on_ray
from k8s.monitoring.generate.promql import promql

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT, _COLUMNS = 8, 8, 3
_SCHEMA = 39
"""Schema of Grafana 10.4. Later versions convert it."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves over time. `queries` maps legends to expressions for `promql`. A single curve has the
    legend ""."""

    title: str
    queries: dict[str, str]
    unit: str = "short"
    """Unit, by Grafana's name."""
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One dashboard. `variables` maps a name to a sample that has the variable as a label, and to
    that label."""

    name: str
    title: str
    variables: dict[str, tuple[str, str]]
    panels: tuple[Panel, ...]

    @property
    def scope(self) -> tuple[str, ...]:
        return tuple(f'{label}=~"${name}"' for name, (_, label) in self.variables.items())


def board_json(board: Board) -> str:
    content = {
        "uid": f"specdec-{board.name}",
        "title": board.title,
        "tags": ["specdec"],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                *(_variable(name, *where) for name, where in board.variables.items()),
            ]
        },
        "panels": [_panel(number, panel, board.scope) for number, panel in enumerate(board.panels)],
    }
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def _variable(name: str, sample: str, label: str) -> dict[str, Any]:
    query = f"label_values({on_ray(sample)}, {label})"
    return {
        "name": name,
        "label": name,
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, panel: Panel, scope: tuple[str, ...]) -> dict[str, Any]:
    row, column = divmod(number, _COLUMNS)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "expr": promql(expr, *scope),
                "legendFormat": legend or panel.title,
            }
            for index, (legend, expr) in enumerate(panel.queries.items())
        ],
    }
