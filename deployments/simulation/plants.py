"""Compares ways to use a number of accelerators by their cost: does a draft device pay?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil
from random import Random
from typing import Any

from deployments.simulation.capacity import Cell, Job, Plant, run_cells
from deployments.simulation.load import spread
from specdec_core.config import SpecMethod

_SPARE_POSITIONS = 64
_COORDINATOR_SHARE = 0.5
"""Maximum share of its core that a coordinator should need. Beyond it, batches wait for the
coordinator."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One way to use a number of accelerators."""

    name: str
    plant: Plant
    num_target_devices: float
    num_draft_devices: float

    def price(self, target_price: float, draft_price: float) -> float:
        """Return the price per hour."""
        return self.num_target_devices * target_price + self.num_draft_devices * draft_price


def layouts(plant: Plant, num_devices: int) -> Iterator[Layout]:
    """Yield the layouts: no drafts, colocated, every split into targets and drafts, and a draft on
    half a device."""
    none = replace(plant.scheduler.speculation, method=SpecMethod.NONE)
    plain = replace(
        plant,
        num_targets=num_devices,
        num_drafts=0,
        scheduler=replace(plant.scheduler, speculation=none),
    )
    yield Layout(f"{num_devices} plain targets", plain, num_devices, 0)
    colocated = replace(plant, num_targets=num_devices, num_drafts=num_devices, is_colocated=True)
    yield Layout(f"{num_devices} colocated", colocated, num_devices, 0)
    for num_drafts in range(1, num_devices // 2 + 1):
        num_targets = num_devices - num_drafts
        split = replace(plant, num_targets=num_targets, num_drafts=num_drafts)
        name = f"{num_targets} targets + {num_drafts} draft{'s' * (num_drafts > 1)}"
        yield Layout(name, split, num_targets, num_drafts)
    num_targets = num_devices - 1
    if num_targets:
        half = replace(plant, num_targets=num_targets, num_drafts=1, draft_share=0.5)
        yield Layout(f"{num_targets} targets + half a draft", half, num_targets, 0.5)


def num_positions(plant: Plant, job: Job) -> int:
    """Return the KV positions for a full window of the longest requests."""
    longest = 2 * (job.prompt_len + job.output_len) + _SPARE_POSITIONS
    return plant.scheduler.window * longest


def measure_closed(
    plant: Plant, job: Job, concurrency: int, *, warm_up_s: float, seconds: float, seed: int
) -> dict[str, Any]:
    """Return the figures of one cell that `concurrency` clients keep busy."""
    random = Random(seed)
    jobs = [spread(job, random) for _ in range(concurrency)]
    cell = Cell(plant, seed, num_positions(plant, job))
    return run_cells([cell.run_closed(jobs, warm_up_s, seconds)])


def num_cells(coordinator_utilisation: float) -> int:
    """Return the number of cells that this load needs. If one coordinator is always busy, the true
    number may be higher."""
    return max(1, ceil(coordinator_utilisation / _COORDINATOR_SHARE))


def compare(
    plant: Plant,
    num_devices: int,
    measure: Callable[[Plant], dict[str, Any]],
    target_price: float,
    draft_price: float,
    on_layout: Callable[[str], None] = lambda name: None,
) -> list[dict[str, Any]]:
    """Return one row per layout, the cheapest tokens first."""
    rows = []
    for layout in layouts(plant, num_devices):
        figures = measure(layout.plant)
        price = layout.price(target_price, draft_price)
        rate = figures["tokens_per_second"]
        devices = layout.num_target_devices + layout.num_draft_devices
        rows.append(
            {
                "layout": layout.name,
                "price_per_hour": price,
                "tokens_per_second": rate,
                "tokens_per_second_per_device": rate / devices,
                "cost_per_million_tokens": price / 3600 / rate * 1e6 if rate else None,
                "num_cells": num_cells(figures["coordinator_utilisation"]),
                **figures,
            }
        )
        on_layout(layout.name)
    return sorted(rows, key=lambda row: row["cost_per_million_tokens"] or float("inf"))
