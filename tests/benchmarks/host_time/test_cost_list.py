"""The list of a round's costs, from made results."""

from __future__ import annotations

from benchmarks.host_time.cost_list import page

FACTS = {"commit": "0123456789", "processor": "a processor"}
ONE_PROCESS = {
    "cell": "h100/8/plain",
    "round_ms": 10.0,
    "critical": {"scheduling": 2.0, "choice": 0.0},
    "functions": {f"pool/a.py f{number}": 0.1 * number for number in range(12)},
}
SERVICE = {"cell": "h100/8/plain", "round_ms": 8.0, "parts_ms": {"device": 5.0, "wire": 3.0}}


def test_the_list_has_the_ten_largest_costs_and_the_gain_without_each() -> None:
    lines = page([{**FACTS, "cells": [ONE_PROCESS]}, {**FACTS, "cells": [SERVICE]}]).splitlines()
    assert "## h100/8/plain, one process: 10.00 ms a round" in lines
    assert "| scheduling | 2.000 | 1.250 |" in lines
    assert not any("choice" in line for line in lines)
    functions = [line for line in lines if line.startswith("| pool/a.py")]
    assert len(functions) == 10
    assert functions[0] == "| pool/a.py f11 | 1.100 | 1.124 |"
    assert "| wire | 3.000 | 1.600 |" in lines
    assert not any("device |" in line for line in lines)
