"""Load a running server for `specdec bench serve`, and report how fast it answered."""

from __future__ import annotations

import asyncio
import json
import math
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
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
from deployments.cli.bench.names import Backend, DatasetName
from deployments.cli.bench.prompts import COPYING_FILE, file_prompts, random_prompts
from deployments.cli.progress import request_progress
from deployments.simulation.arrivals import arrivals
from specdec_core.errors import InvalidRequestError, SpecdecError

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


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchServeOptions:
    """The command's flags; flags.py says what each means."""

    backend: Backend
    base_url: str
    model: str | None
    api_key: str | None
    extra_body: dict[str, Any]
    dataset_name: DatasetName | None
    dataset_path: Path | None
    num_prompts: int | None
    random_input_len: int
    max_tokens: int
    temperature: float
    ignore_eos: bool
    request_rate: float
    max_concurrency: int | None
    num_warmups: int
    repeat: int
    seed: int
    save_result: Path | None

    def __post_init__(self) -> None:
        """Report mistakes before anything is sent."""
        if not self.request_rate > 0:
            raise InvalidRequestError(f"--request-rate must be above 0, got {self.request_rate:g}")
        has_own_prompts = self.dataset in (DatasetName.RANDOM, DatasetName.COPYING)
        if has_own_prompts and self.dataset_path is not None:
            raise InvalidRequestError(f"--dataset-name {self.dataset} takes no --dataset-path")
        if not has_own_prompts and self.dataset_path is None:
            raise InvalidRequestError(f"--dataset-name {self.dataset} needs --dataset-path")
        if self.dataset is DatasetName.COPYING and not self.is_chat:
            raise InvalidRequestError("--dataset-name copying has chats: use --backend openai-chat")
        if self.save_result is not None and not self.save_result.parent.is_dir():
            folder = self.save_result.parent
            raise InvalidRequestError(f"{self.save_result}: there is no folder {folder}")

    @property
    def is_chat(self) -> bool:
        return self.backend is Backend.OPENAI_CHAT

    @property
    def dataset(self) -> DatasetName:
        """The data set. A file without a name is taken as it is. Without a file the prompts are
        random."""
        inferred = DatasetName.RANDOM if self.dataset_path is None else DatasetName.CUSTOM
        return self.dataset_name or inferred

    def prompts(self) -> list[Prompt]:
        """Return the requests. Raises InvalidRequestError for a file that the route cannot
        carry."""
        fields: dict[str, Any] = {"max_tokens": self.max_tokens, "temperature": self.temperature}
        if self.ignore_eos or self.dataset is DatasetName.RANDOM:
            fields["ignore_eos"] = True
        if self.dataset is DatasetName.RANDOM:
            count, length = self.num_prompts or _RANDOM_PROMPTS, self.random_input_len
            return random_prompts(count, length, fields, is_chat=self.is_chat, seed=self.seed)
        path = self.dataset_path or COPYING_FILE
        return file_prompts(self.dataset, path, self.num_prompts, fields, is_chat=self.is_chat)

    def settings(self) -> Figures:
        """Return all flags except the key, for a JSON file. Infinity is written as "inf"."""
        named = {name: value for name, value in asdict(self).items() if name != "api_key"}
        return {name: "inf" if value == math.inf else value for name, value in named.items()}


def run(options: BenchServeOptions) -> None:
    """Measure the server, print a table and write the requested file.

    Raises SpecdecError if no request of a run was answered.
    """
    prompts = options.prompts()
    with request_progress(options.repeat * len(prompts)) as report:
        model, runs = asyncio.run(_measure(options, prompts, report))
    found = _result(model, runs, options.settings())
    console = Console()
    console.print(_table(found))
    for line in _failures(runs):
        console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    if options.save_result is not None:
        options.save_result.write_text(json.dumps(found, indent=2, default=str) + "\n")
    if not all(one["completed"] for one in found["runs"]):
        raise SpecdecError("no request was answered")


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
