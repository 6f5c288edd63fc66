"""What the steps found, as JSON and as a page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Result:
    """Of one step."""

    step: str
    passed: bool
    seconds: float
    figures: Mapping[str, Any]
    problem: str = ""
    events: Sequence[str] = ()
    """Kubernetes' own, of pods that are not well."""


def write(
    results: Sequence[Result], planned: Sequence[str], about: Mapping[str, Any], json_path: Path
) -> None:
    """Write the JSON and the page next to it. `planned`: names of all steps of this run."""
    json_path.parent.mkdir(parents=True, exist_ok=True)
    steps = [asdict(result) for result in results]
    found = {"about": dict(about), "planned": list(planned), "steps": steps}
    json_path.write_text(json.dumps(found, indent=1) + "\n")
    json_path.with_suffix(".md").write_text(page(results, planned, about))


def page(results: Sequence[Result], planned: Sequence[str], about: Mapping[str, Any]) -> str:
    """Return the report as Markdown."""
    passed = sum(result.passed for result in results)
    not_run = planned[len(results) :]
    lines = [
        f"# make test-cluster: {passed} of {len(planned)} steps passed"
        + (f", {len(not_run)} not run" if not_run else ""),
        "",
        *(f"- {name}: {value}" for name, value in about.items()),
        "",
        "| step | result | seconds | identical of answered | errors | longest gap s | more |",
        "|---|---|---|---|---|---|---|",
        *(row for result in results for row in _rows(result)),
        *(f"| {name} | not run | - | - | - | - |  |" for name in not_run),
        "",
    ]
    for result in results:
        if not result.passed:
            lines += [f"## {result.step}", "", result.problem, ""]
            lines += [f"- {event}" for event in result.events]
    return "\n".join(lines).rstrip() + "\n"


def _rows(result: Result) -> list[str]:
    verdict = "passed" if result.passed else "**failed**"
    loads = {name: load for name, load in result.figures.items() if isinstance(load, Mapping)}
    if "answers" in result.figures:
        loads = {"": result.figures}
    rest = {
        name: value
        for name, value in result.figures.items()
        if name not in loads and name not in _OF_LOAD
    }
    more = ", ".join(f"{name} {value}" for name, value in rest.items())
    if not loads:
        return [f"| {result.step} | {verdict} | {result.seconds:.0f} | - | - | - | {more} |"]
    return [
        f"| {result.step}{f' ({name})' if name else ''} | {verdict} | {result.seconds:.0f} "
        f"| {load['identical']} of {load['answers']}"
        f"{f', {resumed} resumed' if (resumed := load['resumed']) else ''} "
        f"| {sum(load['errors'].values())} | {load['longest_gap_s']} | {more} |"
        for name, load in loads.items()
    ]


_OF_LOAD = {
    "answers",
    "identical",
    "resumed",
    "errors",
    "longest_gap_s",
    "longest_first_token_s",
}
