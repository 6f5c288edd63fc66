"""k8s/monitoring and docs/metrics.md are what the registry makes, and name nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from k8s.monitoring.generate.__main__ import files
from k8s.monitoring.generate.alerts import ALERTS
from tests.dashboards.committed import BOARDS, FOLDER, ROOT, known, recorded, rules
from tests.dashboards.expressions import faults, faults_of_variable, labels_of

_DURATION = re.compile(r"^(\d+(ms|[smhdwy]))+$")
_RULE_NAME = re.compile(r"^[a-zA-Z_:][a-zA-Z0-9_:]*$")
_TEMPLATE = re.compile(r"\{\{ *\$labels\.(\w+) *\}\}")
_LEGEND = re.compile(r"\{\{ *(\w+) *\}\}")


def ids(rule: dict[str, Any]) -> str:
    return str(rule.get("record") or rule.get("alert"))


@pytest.mark.parametrize(("path", "text"), list(files()), ids=lambda value: value[-30:])
def test_what_is_committed_is_what_is_made(path: str, text: str) -> None:
    assert (ROOT / path).read_text() == text, "run `make dashboards`"


@pytest.mark.parametrize("rule", rules(), ids=ids)
def test_every_rule_is_promql_over_what_is_exported(rule: dict[str, Any]) -> None:
    assert faults(rule["expr"], known()) == []


@pytest.mark.parametrize("rule", rules(), ids=ids)
def test_every_rule_has_the_fields_that_prometheus_takes(rule: dict[str, Any]) -> None:
    if "record" in rule:
        assert set(rule) == {"record", "expr"}
        assert _RULE_NAME.match(rule["record"])
        return
    assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
    assert _RULE_NAME.match(rule["alert"])
    assert _DURATION.match(rule["for"])
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert all(isinstance(text, str) for text in rule["annotations"].values())


@pytest.mark.parametrize("rule", [r for r in rules() if "alert" in r], ids=ids)
def test_an_alert_tells_labels_that_it_has(rule: dict[str, Any]) -> None:
    told = set(_TEMPLATE.findall(rule["annotations"]["summary"]))
    names = [name for name in recorded() if name in rule["expr"]]
    there = labels_of(rule["expr"]).union(*(recorded()[name] for name in names))
    assert told <= there


def test_names_of_rules_and_groups_are_unique() -> None:
    names = [ids(rule) for rule in rules()]
    assert len(set(names)) == len(names)
    groups = yaml.safe_load((FOLDER / "rules.yaml").read_text())["groups"]
    assert len({group["name"] for group in groups}) == len(groups)
    assert all(_DURATION.match(group["interval"]) for group in groups)


def test_the_operator_gets_the_same_rules() -> None:
    content = yaml.safe_load((FOLDER / "prometheus_rule.yaml").read_text())
    assert (content["apiVersion"], content["kind"]) == (
        "monitoring.coreos.com/v1",
        "PrometheusRule",
    )
    assert content["spec"] == yaml.safe_load((FOLDER / "rules.yaml").read_text())


def test_every_alert_has_a_section_in_the_runbook_and_no_section_is_left_over() -> None:
    text = (ROOT / "docs" / "runbook.md").read_text()
    sections = re.findall(r"^## (\w+)\n\n(Means: .+)\n(Look: .+)\n(Do: .+)$", text, re.MULTILINE)
    assert [name for name, *_ in sections] == [alert.name for alert in ALERTS]
    assert len(re.findall(r"^## ", text, re.MULTILINE)) == len(sections)
    for rule in rules():
        if "alert" in rule:
            anchor = rule["annotations"]["runbook_url"].partition("#")[2]
            assert anchor == rule["alert"].lower()


def test_there_are_four_boards_and_kustomize_carries_them() -> None:
    assert {path.stem for path in BOARDS} == {"service", "speculation", "pool", "replicas"}
    content = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    (generator,) = content["configMapGenerator"]
    assert {Path(name).name for name in generator["files"]} == {path.name for path in BOARDS}
    assert content["resources"] == ["prometheus_rule.yaml"]


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_every_panel_is_promql_over_what_is_exported(path: Path) -> None:
    board = json.loads(path.read_text())
    variables = {one["name"]: one for one in board["templating"]["list"]}
    for panel in board["panels"]:
        for target in panel["targets"]:
            assert faults(target["expr"], known()) == [], panel["title"]
            assert target["datasource"]["uid"] == "${datasource}"
            assert set(re.findall(r"\$([a-z]\w+)", target["expr"])) <= set(variables)
            legend = set(_LEGEND.findall(target["legendFormat"]))
            assert legend <= labels_of(target["expr"].replace("$__rate_interval", "5m"))
    for variable in variables.values():
        if variable["type"] == "query":
            assert faults_of_variable(variable["definition"], known()) == []
    assert variables["datasource"]["type"] == "datasource"
    assert {"model", "cell"} <= set(variables)


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_panels_neither_overlap_nor_share_an_id(path: Path) -> None:
    panels = json.loads(path.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells
        assert place["x"] + place["w"] <= 24
        taken |= cells
