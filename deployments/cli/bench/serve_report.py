"""Report of a load: vLLM's keys as JSON, and vLLM's block as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from statistics import median, median_low
from typing import Any

from rich.table import Table

from deployments.cli.bench.figures import Wanted, figures
from deployments.cli.bench.load import LoadRun
from deployments.cli.bench.names import METRICS
from deployments.cli.bench.serve_options import BenchServeOptions
from deployments.cli.bench.stage_figures import middle_stages, stage_rows

_PER_POSITION = "spec_decode_per_position_acceptance_rates"
_STAGES = "stages"
_WORST = {"completed": min, "failed": max}
"""Over several runs the worst value is reported, so that a median hides no failure."""
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
    ("Request goodput (req/s):", "request_goodput"),
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

Figures = dict[str, Any]


def result(options: BenchServeOptions, model: str, runs: Sequence[LoadRun]) -> Figures:
    """Return everything as JSON: the medians over the runs at the top, each run under `runs`."""
    settings = options.settings()
    each = [_run_figures(options, run) for run in runs]
    told = [
        {**own, **_details(run)} if options.save_detailed else own
        for own, run in zip(each, runs, strict=True)
    ]
    return {
        "date": datetime.now().strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": options.backend.value,
        "backend": options.backend.value,
        "label": None,
        "model_id": model,
        "tokenizer_id": None,
        "num_prompts": len(runs[0].records),
        **{name: settings[name] for name in ("request_rate", "burstiness", "max_concurrency")},
        **(told[0] if len(told) == 1 else over_runs(each)),
        "repeat": len(runs),
        "runs": told,
        "settings": settings,
    }


def _run_figures(options: BenchServeOptions, run: LoadRun) -> Figures:
    found = figures(run.records, run.duration_s, options.wanted)
    found |= run.speculation.figures() if run.speculation else {}
    return found | ({_STAGES: run.stages} if run.stages else {})


def _details(run: LoadRun) -> Figures:
    """Return the details of every request, in seconds, under vLLM's names. 0 for a failed
    request."""
    done = [record if record.error is None else None for record in run.records]
    return {
        "input_lens": [record.usage.num_input for record in run.records],
        "output_lens": [record.usage.num_output for record in run.records],
        "start_times": [record.start_s for record in run.records],
        "ttfts": [record.ttft_s if record else 0.0 for record in done],
        "itls": [record.itl_s for record in run.records],
        "latencies": [record.e2el_s if record else 0.0 for record in done],
        "errors": [record.error or "" for record in run.records],
    }


def over_runs(runs: Sequence[Figures]) -> Figures:
    """Return the median of every figure that all runs have. For a count, it is a value that
    occurred."""
    shared = [name for name in runs[0] if all(name in run for run in runs)]
    return {name: _middle(name, [run[name] for run in runs]) for name in shared}


def _middle(name: str, values: Sequence[Any]) -> Any:
    if name in _WORST:
        return _WORST[name](values)
    if name == _PER_POSITION:
        return [median(rates) for rates in zip(*values, strict=False)]
    if name == _STAGES:
        return middle_stages(values)
    if None in values:
        return None
    return median_low(values) if isinstance(values[0], int) else median(values)


def serve_table(found: Figures, wanted: Wanted) -> Table:
    """Return the table in the order of vLLM's block. Several runs are shown next to their
    medians."""
    runs = found["runs"] if len(found["runs"]) > 1 else []
    names = ["median", *(f"run {number}" for number in range(1, len(runs) + 1))] if runs else [""]
    table = Table(title="Serving Benchmark Result", min_width=50)
    table.add_column("")
    for name in names:
        table.add_column(name, justify="right")
    columns = [found, *runs]
    for title, rows in _sections(found, wanted):
        table.add_section()
        if title:
            table.add_row(f"[bold]{title}")
        for label, key in rows:
            if found.get(key) not in (None, "inf"):
                table.add_row(label, *(_shown(column.get(key)) for column in columns))
    _add_positions(table, columns)
    _add_stages(table, columns)
    return table


def _sections(found: Figures, wanted: Wanted) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    yield "", list(_TOTALS)
    for name, title in METRICS.items():
        if name in wanted.metrics:
            short = name.upper()
            kinds = [("Mean", "mean"), ("Median", "median")]
            kinds += [(f"P{p:g}", f"p{p:g}") for p in wanted.percentiles]
            yield title, [(f"{kind} {short} (ms):", f"{key}_{name}_ms") for kind, key in kinds]
    if "spec_decode_acceptance_rate" in found:
        yield "Speculative Decoding", list(_SPECULATION)


def _add_positions(table: Table, columns: Sequence[Mapping[str, Any]]) -> None:
    rates = [column.get(_PER_POSITION, []) for column in columns]
    if not rates[0]:
        return
    table.add_row("Per-position acceptance (%):")
    for place in range(len(rates[0])):
        shown = (f"{100 * own[place]:.2f}" if place < len(own) else "-" for own in rates)
        table.add_row(f"  Position {place}:", *shown)


def _add_stages(table: Table, columns: Sequence[Mapping[str, Any]]) -> None:
    told = [dict(stage_rows(column.get(_STAGES, {}))) for column in columns]
    if not told[0]:
        return
    table.add_section()
    table.add_row("[bold]Stages of a round, and of an answer's piece")
    for label in told[0]:
        table.add_row(label, *(own.get(label, "-") for own in told))


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.2f}"


def failures_text(runs: Sequence[LoadRun]) -> Iterator[str]:
    """Yield the most frequent messages, each with its number of failures."""
    failures = sum((run.failures for run in runs), start=Counter())
    for message, count in failures.most_common(_SHOWN_FAILURES):
        yield f"{count} failed: {message}"
    num_more = len(failures) - _SHOWN_FAILURES
    if num_more > 0:
        yield f"and {num_more} other messages"
