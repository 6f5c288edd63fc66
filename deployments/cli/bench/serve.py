"""Load a running server for `specdec bench serve`, and report how fast it answered."""

from __future__ import annotations

import asyncio
import json
import math
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from deployments.cli.bench.client import Prompt, http_client
from deployments.cli.bench.figures import (
    METRICS,
    PER_POSITION,
    PERCENTILES,
    Figures,
    figures,
    over_runs,
)
from deployments.cli.bench.load import LoadRun, Report, run_load
from deployments.cli.bench.names import DatasetName
from deployments.cli.bench.prompts import COPYING_FILE, file_prompts, random_prompts
from deployments.cli.bench.serve_options import BenchServeOptions
from deployments.cli.progress import request_progress
from deployments.config.flags import values_of
from deployments.simulation.arrivals import arrivals
from specdec_core.errors import SpecdecError

_TIMEOUT_S = 600.0
"""Maximum time of one request."""
_RANDOM_PROMPTS = 100
_SHOWN_FAILURES = 5
_TOTALS = (
    ("Successful requests:", "completed"),
    ("Failed requests:", "failed"),
    ("Maximum request concurrency:", "max_concurrency"),
    ("Request rate configured (RPS):", "request_rate"),
    ("Benchmark duration (s):", "duration"),
    ("Total input tokens:", "total_input_tokens"),
    ("Total generated tokens:", "total_output_tokens"),
    ("Request throughput (req/s):", "request_throughput"),
    ("Output token throughput (tok/s):", "output_throughput"),
    ("Peak output token throughput (tok/s):", "max_output_tokens_per_s"),
    ("Peak concurrent requests:", "max_concurrent_requests"),
    ("Total token throughput (tok/s):", "total_token_throughput"),
    ("Decode throughput per stream (tok/s):", "decode_throughput_per_stream"),
)
_SPECULATION = (
    ("Acceptance rate (%):", "spec_decode_acceptance_rate"),
    ("Acceptance length:", "spec_decode_acceptance_length"),
    ("Drafts:", "spec_decode_num_drafts"),
    ("Draft tokens:", "spec_decode_draft_tokens"),
    ("Accepted tokens:", "spec_decode_accepted_tokens"),
)


def run(options: BenchServeOptions) -> None:
    """Measure the server, print a table and write the requested file.

    Raises SpecdecError if no request of a run was answered.
    """
    prompts = _prompts(options)
    with request_progress(options.repeat * len(prompts)) as report:
        model, runs = asyncio.run(_measure(options, prompts, report))
    found = _result(model, runs, _settings(options))
    console = Console()
    console.print(_table(found))
    for line in _failures(runs):
        console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    if options.save_result is not None:
        options.save_result.write_text(json.dumps(found, indent=2, default=str) + "\n")
    if not all(one["completed"] for one in found["runs"]):
        raise SpecdecError("no request was answered")


def _prompts(options: BenchServeOptions) -> list[Prompt]:
    """Return the requests. Raises InvalidRequestError for a file that the route cannot
    carry."""
    fields: dict[str, Any] = {"max_tokens": options.max_tokens, "temperature": options.temperature}
    if options.ignore_eos or options.dataset is DatasetName.RANDOM:
        fields["ignore_eos"] = True
    if options.dataset is DatasetName.RANDOM:
        count, length = options.num_prompts or _RANDOM_PROMPTS, options.random_input_len
        return random_prompts(count, length, fields, is_chat=options.is_chat, seed=options.seed)
    path = options.dataset_path or COPYING_FILE
    return file_prompts(options.dataset, path, options.num_prompts, fields, is_chat=options.is_chat)


def _settings(options: BenchServeOptions) -> Figures:
    """Return all flags except the key, for a JSON file. Infinity is written as "inf"."""
    named = {name: value for name, value in values_of(options).items() if name != "api_key"}
    return {name: "inf" if value == math.inf else value for name, value in named.items()}


async def _measure(
    options: BenchServeOptions, prompts: list[Prompt], report: Report
) -> tuple[str, list[LoadRun]]:
    async with http_client(
        options.base_url,
        model=options.model,
        api_key=options.api_key,
        extra_body=options.extra_body,
    ) as client:
        # The first prompt warms up, as in vLLM.
        warm_up = _for_one_run(options, prompts[:1] * options.num_warmups)
        for message in (await run_load(client, warm_up, timeout_s=_TIMEOUT_S)).failures:
            raise SpecdecError(f"a warm-up request failed: {message}")
        due_s = arrivals(len(prompts), rate=options.request_rate, burstiness=1.0, seed=options.seed)
        runs: list[LoadRun] = []
        for number in range(options.repeat):
            run = await run_load(
                client,
                _for_one_run(options, prompts),
                arrivals_s=due_s,
                max_concurrency=options.max_concurrency,
                timeout_s=_TIMEOUT_S,
                report=_after(number * len(prompts), report),
            )
            runs.append(run)
        return client.model, runs


def _for_one_run(options: BenchServeOptions, prompts: list[Prompt]) -> list[Prompt]:
    """Return chats with text to copy under a new cache salt, so that no run finds the prefix cache
    of an earlier one."""
    if options.dataset is not DatasetName.COPYING:
        return prompts
    salt = {"cache_salt": uuid.uuid4().hex}
    return [replace(one, fields={**one.fields, **salt}) for one in prompts]


def _after(num_before: int, report: Report) -> Report:
    """Return a report that adds the requests of earlier runs."""
    return lambda num_ended, speed: report(num_before + num_ended, speed)


def _result(model: str, runs: Sequence[LoadRun], settings: Figures) -> Figures:
    """Return everything as JSON: the medians over the runs at the top, each run under `runs`."""
    each = [figures(run) for run in runs]
    return {
        "date": datetime.now().strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": settings["backend"],
        "backend": settings["backend"],
        "label": None,
        "model_id": model,
        "tokenizer_id": None,
        "num_prompts": len(runs[0].records),
        "request_rate": settings["request_rate"],
        "max_concurrency": settings["max_concurrency"],
        **over_runs(each),
        "repeat": len(runs),
        "runs": each,
        "settings": settings,
    }


def _table(found: Figures) -> Table:
    """Return the table in the order of vLLM's. Several runs are shown next to their medians."""
    runs = found["runs"] if len(found["runs"]) > 1 else []
    table = Table(title="Serving Benchmark Result", min_width=50)
    table.add_column("")
    for name in ["median" if runs else "", *(f"run {n}" for n in range(1, len(runs) + 1))]:
        table.add_column(name, justify="right")
    columns = [found, *runs]
    for title, rows in _sections(found):
        table.add_section()
        if title:
            table.add_row(f"[bold]{title}")
        for label, key in rows:
            if found.get(key) not in (None, "inf"):
                table.add_row(label, *(_shown(column.get(key)) for column in columns))
    rates = [column.get(PER_POSITION, []) for column in columns]
    for place in range(len(rates[0])):
        shown = (f"{100 * own[place]:.2f}" if place < len(own) else "-" for own in rates)
        table.add_row(f"Acceptance at position {place} (%):", *shown)
    return table


def _sections(found: Figures) -> Iterator[tuple[str, Sequence[tuple[str, str]]]]:
    yield "", _TOTALS
    for name, title in METRICS.items():
        kinds = [("Mean", "mean"), ("Median", "median")] + [(f"P{p}", f"p{p}") for p in PERCENTILES]
        yield title, [(f"{kind} {name.upper()} (ms):", f"{key}_{name}_ms") for kind, key in kinds]
    if "spec_decode_acceptance_rate" in found:
        yield "Speculative Decoding", _SPECULATION


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.2f}"


def _failures(runs: Sequence[LoadRun]) -> Iterator[str]:
    """Yield the most frequent messages, each with its number of failures."""
    failures = sum((run.failures for run in runs), start=Counter())
    for message, count in failures.most_common(_SHOWN_FAILURES):
        yield f"{count} failed: {message}"
    if (num_more := len(failures) - _SHOWN_FAILURES) > 0:
        yield f"and {num_more} other messages"
