"""Runs what `specdec simulate capacity` asks for."""

from __future__ import annotations

from random import Random
from typing import Any

from deployments.config.scheduler import MAX_OPEN_LEASES
from deployments.config.speculation import SpeculationOptions
from deployments.simulation.capacity import Cell, CellRun, Job, Plant, run_cells
from deployments.simulation.capacity_options import CapacityOptions
from deployments.simulation.coordinating import CoordinatorCosts
from deployments.simulation.load import TimedJob, deal, drawn, read_trace, spread
from deployments.simulation.plants import compare, measure_closed, num_positions
from deployments.simulation.step_costs import StepCosts, parse_step_ms
from specdec_core.config import SpecMethod

_ENDLESS = 1_000_000
"""Queue limit and lease lifetime that no run reaches. No request is refused and no lease expires,
because only the load matters."""


def job_of(options: CapacityOptions) -> Job:
    return Job(options.prompt_len, options.output_len)


def plant_of(options: CapacityOptions, cell: int) -> Plant:
    """Return the cell's configuration, with its share of the replicas."""
    method = SpecMethod.DRAFT_MODEL if options.drafts or options.recommend else SpecMethod.NONE
    return Plant(
        num_targets=share_of(options.targets, options.cells, cell),
        num_drafts=share_of(options.drafts, options.cells, cell),
        scheduler=SpeculationOptions(spec_policy=options.spec_policy).scheduler_config(
            method,
            options.spec_tokens,
            rows=options.batch_size,
            window=options.window,
            max_queued=_ENDLESS,
            lease_ttl_s=_ENDLESS,
            max_open_leases=MAX_OPEN_LEASES,
        ),
        steps=StepCosts(
            verify=parse_step_ms(options.verify_ms), draft=parse_step_ms(options.draft_ms)
        ),
        acceptance=options.acceptance,
        coordinator=CoordinatorCosts(
            message_s=options.message_us / 1e6,
            row_s=options.row_us / 1e6,
            event_s=options.event_us / 1e6,
        ),
    )


def share_of(count: int, num_shares: int, index: int) -> int:
    """Return the size of share `index`; shares differ by at most one."""
    return count // num_shares + (index < count % num_shares)


def run(options: CapacityOptions) -> dict[str, Any]:
    """Return the report, in the form that is written to the output file."""
    if options.recommend:
        return {"layouts": _compare(options)}
    if options.request_rate is None and options.trace_file is None:
        cells = [_closed_cell(options, index) for index in range(options.cells)]
    else:
        hands = deal(_timed_jobs(options), options.cells)
        cells = [_open_cell(options, index, hand) for index, hand in enumerate(hands)]
    return {"figures": run_cells(cells)}


def _closed_cell(options: CapacityOptions, index: int) -> CellRun:
    plant = plant_of(options, index)
    random = Random(options.seed + index)
    num_clients = share_of(options.num_clients, options.cells, index)
    jobs = [spread(job_of(options), random) for _ in range(num_clients)]
    cell = Cell(plant, options.seed + index, num_positions(plant, job_of(options)))
    return cell.run_closed(jobs, options.warm_up, options.seconds)


def _open_cell(options: CapacityOptions, index: int, jobs: list[TimedJob]) -> CellRun:
    plant = plant_of(options, index)
    longest = max((job for _, job in jobs), key=lambda j: j.prompt_len + j.output_len)
    cell = Cell(plant, options.seed + index, num_positions(plant, longest))
    return cell.run_open(jobs, options.seconds)


def _timed_jobs(options: CapacityOptions) -> list[TimedJob]:
    if options.trace_file is not None:
        return read_trace(options.trace_file)
    assert options.request_rate is not None, "it is one of the two"
    return drawn(
        options.request_rate,
        options.burstiness,
        options.seconds,
        job_of(options),
        seed=options.seed,
    )


def _compare(options: CapacityOptions) -> list[dict[str, Any]]:
    """Compare layouts that serve the same clients with the same number of accelerators."""
    num_devices = options.targets + options.drafts
    num_clients = options.concurrency or num_devices * options.batch_size

    def measure(plant: Plant) -> dict[str, Any]:
        return measure_closed(
            plant,
            job_of(options),
            num_clients,
            warm_up_s=options.warm_up,
            seconds=options.seconds,
            seed=options.seed,
        )

    prices = options.target_price, options.draft_price
    return compare(plant_of(options, 0), num_devices, measure, *prices)
