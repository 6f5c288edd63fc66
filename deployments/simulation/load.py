"""Traffic for the capacity world: drawn, or read from a file."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from deployments.simulation.arrivals import arrivals
from deployments.simulation.capacity import Job
from specdec_core.errors import InvalidRequestError

TimedJob = tuple[float, Job]


def drawn(rate: float, burstiness: float, seconds: float, job: Job, *, seed: int) -> list[TimedJob]:
    """Return the requests of `seconds`. Their lengths are spread evenly around those of `job`."""
    random = Random(seed)
    times = arrivals(max(round(rate * seconds), 1), rate=rate, burstiness=burstiness, seed=seed)
    return [(time, spread(job, random)) for time in times]


def spread(job: Job, random: Random) -> Job:
    """Return a job with lengths between half and one and a half of those of `job`."""
    return Job(
        max(1, round(job.prompt_len * random.uniform(0.5, 1.5))),
        max(1, round(job.output_len * random.uniform(0.5, 1.5))),
    )


def read_trace(path: Path) -> list[TimedJob]:
    """Read a trace of JSON lines with the keys "time" (seconds), "prompt_len" and "output_len"."""
    jobs = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            entry = json.loads(line)
            job = Job(int(entry["prompt_len"]), int(entry["output_len"]))
            jobs.append((float(entry["time"]), job))
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidRequestError(
                f"{path}:{number}: time, prompt_len and output_len are needed, got {line!r}"
            ) from error
    return sorted(jobs, key=lambda timed: timed[0])


def deal(jobs: list[TimedJob], num_cells: int) -> list[list[TimedJob]]:
    """Deal the jobs to the cells in turn. On the whole, ingresses that ask for the less loaded of
    two cells do the same."""
    return [jobs[index::num_cells] for index in range(num_cells)]
