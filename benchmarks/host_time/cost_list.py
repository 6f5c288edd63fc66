"""The largest costs of a round, and the gain if each were gone, from results of host_time.

python -m benchmarks.host_time h100/{8,32,128}/{plain,ngram-0.7} --functions --output one.json
python -m benchmarks.host_time.served h100/{8,32,128}/{plain,ngram-0.7} --output served.json
python -m benchmarks.host_time.cost_list one.json served.json --output F.md
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_NUM_COSTS = 10
_DEVICE = ("device", "draft: device")
"""Parts of the service that are no cost of the host."""
_HEAD = """# Costs of a round

Passes of the device are modelled, so no figure is a measurement of a GPU. `gain` is the tokens per
second without this cost over those with it, if nothing else changed. It is at most that for a
function: a part of its CPU time passes while the device is busy.
"""


def costs_of(cell: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return the host's largest costs of a cell in milliseconds a round: its parts and functions,
    or the parts of the service."""
    if "parts_ms" in cell:
        parts = {name: ms for name, ms in cell["parts_ms"].items() if name not in _DEVICE}
        return _largest(parts)
    return _largest(cell["critical"]) + _largest(cell["functions"])


def _largest(costs: Mapping[str, float]) -> list[tuple[str, float]]:
    ordered = sorted(costs.items(), key=lambda cost: -cost[1])
    return [(name, ms) for name, ms in ordered[:_NUM_COSTS] if ms > 0.0]


def page(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the list as Markdown, one table for each cell."""
    return "\n".join([_HEAD, *(line for result in results for line in _tables(result))])


def _tables(result: Mapping[str, Any]) -> Iterator[str]:
    for cell in result["cells"]:
        where = "service" if "parts_ms" in cell else "one process"
        whole_ms = cell["round_ms"]
        yield f"## {cell['cell']}, {where}: {whole_ms:.2f} ms a round\n"
        yield f"Commit {result['commit'][:7]}, {result['processor']}.\n"
        yield "| cost | ms a round | gain |"
        yield "|---|--:|--:|"
        for name, ms in costs_of(cell):
            gain = f"{whole_ms / (whole_ms - ms):.3f}" if ms < whole_ms else "-"
            yield f"| {name} | {ms:.3f} | {gain} |"
        yield ""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="+", type=Path, help="JSON files of host_time.")
    parser.add_argument("--output", type=Path, required=True, help="Markdown file.")
    asked = parser.parse_args()
    asked.output.write_text(page([json.loads(path.read_text()) for path in asked.results]))


if __name__ == "__main__":
    main()
