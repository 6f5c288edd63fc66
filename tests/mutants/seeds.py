"""`python -m tests.mutants.seeds`: which seed of the simulation finds each seeded defect.

python -m tests.mutants.seeds --seeds 50 --jobs 2 --output found.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.mutants import resume, simulated, simulated_drift, simulated_streams
from tests.mutants.mutant import Mutant
from tests.mutants.runner import copies

CANDIDATES = (
    *simulated.MUTANTS,
    *simulated_streams.MUTANTS,
    *simulated_drift.MUTANTS,
    *resume.MUTANTS,
)
_RUN = """
import sys
from deployments.simulation.campaign import run_seeds
found = run_seeds(0, int(sys.argv[1])).violations
print(f"{found[0].seed}\\t{found[0].violation}" if found else "none\\t")
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=50, help="of each, at most")
    parser.add_argument("--jobs", type=int, default=1, help="defects at the same time")
    parser.add_argument("--output", type=Path, help="JSON: defect, seed, violation")
    options = parser.parse_args()
    rows = _find(options.seeds, options.jobs)
    if options.output is not None:
        options.output.write_text(json.dumps(rows, indent=1) + "\n")
    table = Table("defect", "seed", "violation")
    for row in rows:
        table.add_row(row["defect"], row["seed"], row["violation"][:100])
    Console().print(table)
    found = sum(row["seed"] != "none" for row in rows)
    print(f"{found} of {len(rows)} are found by seeds 0 to {options.seeds - 1}")
    return 0


def _find(num_seeds: int, num_jobs: int) -> list[dict[str, str]]:
    with copies(num_jobs) as folders, ThreadPoolExecutor(num_jobs) as executor:
        free: SimpleQueue[Path] = SimpleQueue()
        for folder in folders:
            free.put(folder)

        def look(mutant: Mutant) -> dict[str, str]:
            folder = free.get()
            try:
                with mutant.applied(folder):
                    return _seed_of(mutant, folder, num_seeds)
            finally:
                free.put(folder)

        found = executor.map(look, CANDIDATES)
        return list(track(found, "defects", total=len(CANDIDATES), console=Console(stderr=True)))


def _seed_of(mutant: Mutant, folder: Path, num_seeds: int) -> dict[str, str]:
    command = [sys.executable, "-B", "-c", _RUN, str(num_seeds)]
    paths = {"PYTHONPATH": f"{folder}:{folder / 'proto'}"}
    ran = subprocess.run(command, cwd=folder, env=paths, capture_output=True, text=True)
    said = ran.stdout.strip().splitlines()[-1:] or [f"none\t{ran.stderr.strip()[-200:]}"]
    seed, _, violation = said[0].partition("\t")
    return {"defect": mutant.name, "seed": seed, "violation": violation}


if __name__ == "__main__":
    sys.exit(main())
