"""The flags of `specdec simulate capacity` as one record, and the runs that they ask for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from deployments.config.scheduler import MAX_OPEN_LEASES
from deployments.simulation.capacity import Cell, CellRun, Job, Plant, run_cells
from deployments.simulation.coordinating import CoordinatorCosts
from deployments.simulation.load import TimedJob, deal, drawn, read_trace, spread
from deployments.simulation.plants import compare, measure_closed, num_positions
from deployments.simulation.step_costs import StepCosts, parse_step_ms
from specdec_core.config import KPolicyName, PoolConfig, SpecMethod, SpeculationConfig
from specdec_core.errors import InvalidRequestError

_WINDOW_PER_ROW = 3
_ENDLESS = 1_000_000
"""Queue limit and lease lifetime that no run reaches. No request is refused and no lease expires,
because only the load matters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityOptions:
    """Flags of the command; capacity_command.py describes each."""

    verify_ms: str
    draft_ms: str
    targets: int
    drafts: int
    cells: int
    acceptance: float
    spec_tokens: int
    spec_policy: KPolicyName
    batch_size: int
    window: int | None
    request_rate: float | None
    burstiness: float
    concurrency: int | None
    trace_file: Path | None
    prompt_len: int
    output_len: int
    seconds: float
    warm_up: float
    row_us: float
    message_us: float
    event_us: float
    recommend: bool
    target_price: float
    draft_price: float
    seed: int

    def __post_init__(self) -> None:
        if self.cells > self.targets:
            raise InvalidRequestError(f"--cells {self.cells} need as many --targets")
        if self.request_rate is not None and self.concurrency is not None:
            raise InvalidRequestError("--request-rate or --concurrency, not both")
        if self.recommend and (self.cells > 1 or self.request_rate or self.trace_file):
            raise InvalidRequestError("--recommend compares one cell under --concurrency")

    @property
    def job(self) -> Job:
        return Job(self.prompt_len, self.output_len)

    @property
    def num_clients(self) -> int:
        """Number of clients of all cells together."""
        return self.concurrency or self.targets * self.batch_size

    def plant(self, cell: int) -> Plant:
        """Return the cell's configuration, with its share of the replicas."""
        method = SpecMethod.DRAFT_MODEL if self.drafts or self.recommend else SpecMethod.NONE
        speculation = SpeculationConfig(
            method=method, num_draft_tokens=self.spec_tokens, k_policy=self.spec_policy
        )
        return Plant(
            num_targets=share_of(self.targets, self.cells, cell),
            num_drafts=share_of(self.drafts, self.cells, cell),
            pool=PoolConfig(
                max_group_size=self.batch_size,
                window=self.window or _WINDOW_PER_ROW * self.batch_size,
                max_queued=_ENDLESS,
                lease_ttl_s=_ENDLESS,
                max_open_leases=MAX_OPEN_LEASES,
                speculation=speculation,
            ),
            steps=StepCosts(
                verify=parse_step_ms(self.verify_ms), draft=parse_step_ms(self.draft_ms)
            ),
            acceptance=self.acceptance,
            coordinator=CoordinatorCosts(
                message_s=self.message_us / 1e6,
                row_s=self.row_us / 1e6,
                event_s=self.event_us / 1e6,
            ),
        )


def share_of(count: int, num_shares: int, place: int) -> int:
    """Return the size of share `place`; shares differ by at most one."""
    return count // num_shares + (place < count % num_shares)


def run(options: CapacityOptions) -> dict[str, Any]:
    """Return the report, in the form that is written to the output file."""
    if options.recommend:
        return {"layouts": _compare(options)}
    if options.request_rate is None and options.trace_file is None:
        cells = [_closed_cell(options, place) for place in range(options.cells)]
    else:
        hands = deal(_timed_jobs(options), options.cells)
        cells = [_open_cell(options, place, hand) for place, hand in enumerate(hands)]
    return {"figures": run_cells(cells)}


def _closed_cell(options: CapacityOptions, place: int) -> CellRun:
    plant = options.plant(place)
    random = Random(options.seed + place)
    num_clients = share_of(options.num_clients, options.cells, place)
    jobs = [spread(options.job, random) for _ in range(num_clients)]
    cell = Cell(plant, options.seed + place, num_positions(plant, options.job))
    return cell.run_closed(jobs, options.warm_up, options.seconds)


def _open_cell(options: CapacityOptions, place: int, jobs: list[TimedJob]) -> CellRun:
    plant = options.plant(place)
    longest = max((job for _, job in jobs), key=lambda j: j.prompt_len + j.output_len)
    cell = Cell(plant, options.seed + place, num_positions(plant, longest))
    return cell.run_open(jobs, options.seconds)


def _timed_jobs(options: CapacityOptions) -> list[TimedJob]:
    if options.trace_file is not None:
        return read_trace(options.trace_file)
    assert options.request_rate is not None, "it is one of the two"
    return drawn(
        options.request_rate,
        options.burstiness,
        options.seconds,
        options.job,
        seed=options.seed,
    )


def _compare(options: CapacityOptions) -> list[dict[str, Any]]:
    """Compare layouts that serve the same clients with the same number of accelerators."""
    num_devices = options.targets + options.drafts
    num_clients = options.concurrency or num_devices * options.batch_size

    def measure(plant: Plant) -> dict[str, Any]:
        return measure_closed(
            plant,
            options.job,
            num_clients,
            warm_up_s=options.warm_up,
            seconds=options.seconds,
            seed=options.seed,
        )

    prices = options.target_price, options.draft_price
    return compare(options.plant(0), num_devices, measure, *prices)
