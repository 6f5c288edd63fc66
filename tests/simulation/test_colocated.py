"""Draft and target on one accelerator under load: never slower than plain decoding.

The oracle is the same world without a draft, and with every fixed K.
"""

from __future__ import annotations

from functools import cache

import pytest

from deployments.simulation.capacity import Plant
from deployments.simulation.capacity_runs import job_of, plant_of
from deployments.simulation.plants import layouts, measure_closed
from specdec_core.config import KPolicyName
from tests.simulation.test_capacity import options

NUM_DEVICES = 4
CLIENTS = 64
"""Two groups for each of them."""
Cell = tuple[str, str, float, float]
"""A pass, a draft step, acceptance, and seconds that are simulated."""
SLOW_DRAFT: Cell = ("25+0.05", "10+0.02", 0.7, 4.0)
SLOW_PASSES: Cell = ("134+2.8", "8+0.85", 0.9, 16.0)
"""They take longer than a group waits for others."""


def speed(layout: str, cell: Cell, k: int, policy: KPolicyName) -> float:
    verify_ms, draft_ms, acceptance, seconds = cell
    asked = options(
        verify_ms=verify_ms,
        draft_ms=draft_ms,
        acceptance=acceptance,
        spec_tokens=k,
        spec_policy=policy,
        prompt_len=128,
        output_len=128,
        row_us=15.0,
        message_us=130.0,
        event_us=14.0,
        recommend=True,
    )
    plants: dict[str, Plant] = {
        one.name: one.plant for one in layouts(plant_of(asked, 0), NUM_DEVICES)
    }
    plant = plants[f"{NUM_DEVICES} {layout}"]
    found = measure_closed(
        plant, job_of(asked), CLIENTS, warm_up_s=seconds, seconds=seconds, seed=0
    )
    rate: float = found["tokens_per_second"]
    return rate


@cache
def reached(cell: Cell) -> float:
    return speed("colocated", cell, 4, KPolicyName.GOODPUT)


@pytest.mark.parametrize(("cell", "gain"), [(SLOW_DRAFT, 1.05), (SLOW_PASSES, 1.4)])
def test_it_is_faster_than_plain_decoding_where_drafts_are_good(cell: Cell, gain: float) -> None:
    """By pass and steps alone they make 1.2 and 2.0 of it; prompts are fed besides, to both."""
    assert reached(cell) >= gain * speed("plain targets", cell, 4, KPolicyName.FIXED)


@pytest.mark.parametrize("cell", [pytest.param(SLOW_DRAFT, marks=pytest.mark.nightly), SLOW_PASSES])
def test_it_is_near_the_best_fixed_k(cell: Cell) -> None:
    fixed = [speed("colocated", cell, k, KPolicyName.FIXED) for k in (1, 2, 4)]
    assert reached(cell) >= 0.95 * max(fixed)
