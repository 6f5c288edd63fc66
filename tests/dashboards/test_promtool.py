"""Prometheus itself reads the rules, and fires each alert when it is to and not nearly then.

Needs promtool (Debian's package `prometheus` has it) on the path or at $PROMTOOL.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments.names import MetricsCompat
from deployments.observability.metrics.export_prometheus import metrics_page
from k8s.monitoring.generate.alerts import ALERTS
from tests.dashboards.committed import FOLDER
from tests.dashboards.scenarios import SCENARIOS, Scenario
from tests.deployments.metrics.status import full_status

RULES = FOLDER / "rules.yaml"
_SERIES = re.compile(r"^(\w+)(?:\{(.*)\})?$")
_WHOSE = 'model_name="m", application="a", cell="0"'


@pytest.fixture(scope="module")
def promtool() -> str:
    found = os.environ.get("PROMTOOL") or shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed")
    return found


def run(*command: str, text: str = "") -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def of_a_cell(series: str) -> str:
    found = _SERIES.match(series)
    assert found is not None
    labels = ", ".join(part for part in (found[2], _WHOSE) if part)
    return f"ray_specdec_{found[1]}{{{labels}}}"


def unit_test(scenario: Scenario) -> dict[str, Any]:
    """As promtool reads it."""
    firing = f'count(ALERTS{{alertname="{scenario.alert}", alertstate="firing"}}) or vector(0)'
    return {
        "interval": "1m",
        "input_series": [
            {"series": of_a_cell(name), "values": values}
            for name, values in scenario.series.items()
        ],
        "promql_expr_test": [
            {
                "expr": firing,
                "eval_time": scenario.at,
                "exp_samples": [{"labels": "{}", "value": int(scenario.fires)}],
            }
        ],
    }


def test_every_alert_has_what_makes_it_fire_and_what_does_not() -> None:
    told = Counter((one.alert, one.fires) for one in SCENARIOS)
    assert told == {(alert.name, fires): 1 for alert in ALERTS for fires in (True, False)}


def test_prometheus_takes_the_rules(promtool: str) -> None:
    run(promtool, "check", "rules", str(RULES))


def test_prometheus_has_nothing_to_say_of_the_page(promtool: str) -> None:
    page = metrics_page(full_status(), "m", MetricsCompat.NONE).decode()
    run(promtool, "check", "metrics", text=page)


def test_every_alert_fires_when_it_is_to(promtool: str, tmp_path: Path) -> None:
    """In one run: promtool names those that do not."""
    content = {"rule_files": [str(RULES)], "tests": [unit_test(one) for one in SCENARIOS]}
    path = tmp_path / "test.yaml"
    path.write_text(yaml.safe_dump(content))
    run(promtool, "test", "rules", str(path))
