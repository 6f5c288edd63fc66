"""The factor of another host comes from functions that both profiles have."""

from __future__ import annotations

import pytest

from benchmarks.host_time.host_factor import RECORDED, Cost, factor_of, recorded_costs

EXTEND = ("replica.py", "extend")
FORGET = ("pool/board.py", "forget")


def test_the_recorded_profile_is_read() -> None:
    costs = recorded_costs(RECORDED.read_text())
    assert costs["leases.py", "hashes_behind"] == Cost(14849, 0.061)
    assert costs["pool/dispatch.py", "_note_on_target"] == Cost(8695, 0.020)
    assert ("models/triton_ops.py", "add_norm") not in costs, "it calls tensor operations"
    assert len(costs) >= 10


def test_the_factor_weighs_functions_by_their_recorded_calls() -> None:
    there = {EXTEND: Cost(1000, 4.0), FORGET: Cost(3000, 3.0), ("leases.py", "x"): Cost(900, 9.0)}
    slow = {EXTEND: Cost(500, 5.0), FORGET: Cost(600, 0.9)}
    quick = {EXTEND: Cost(2000, 4.0)}
    found = factor_of(there, [slow, quick])
    assert [one.ratio for one in found.functions] == pytest.approx([1.0 / 1.5, 2.0])
    assert found.factor == pytest.approx((4.0 + 3.0) / (1000 * 0.002 + 3000 * 0.0015))
    assert found.median == pytest.approx((1.0 / 1.5 + 2.0) / 2)


def test_without_a_shared_function_the_error_names_the_commit() -> None:
    with pytest.raises(ValueError, match="ecea5c2"):
        factor_of({EXTEND: Cost(1000, 1.0)}, [{FORGET: Cost(1000, 1.0)}])
