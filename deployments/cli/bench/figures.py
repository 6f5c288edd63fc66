"""Compute the figures of a run from its records, by vLLM's names and definitions.

vLLM counts a chunk as a token. Here the peak throughput counts the server's tokens, and the peak of
concurrent requests includes those that failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from statistics import fmean, median, median_low, pstdev
from typing import Any, NamedTuple

from deployments.cli.bench.load import LoadRun, RequestRecord

METRICS = {
    "ttft": "Time to First Token",
    "tpot": "Time per Output Token (excl. 1st token)",
    "itl": "Inter-token Latency",
    "e2el": "End-to-end Latency",
}
"""Latencies by name, in the order of the report."""
PERCENTILES = (50, 90, 99)
PER_POSITION = "spec_decode_per_position_acceptance_rates"
_WORST = {"completed": min, "failed": max}
"""Over several runs the worst value is reported, so that a median hides no failure."""

Figures = dict[str, Any]


class Decoding(NamedTuple):
    """Answers from their first chunk on, so that the time of prompts does not count."""

    tokens: float
    """Output tokens after the first chunk of each answer. With speculation a chunk has several."""
    seconds: float
    """Time from the first chunk to the end, summed over the answers."""

    @property
    def rate(self) -> float:
        """Tokens per second of one stream. 0 if no answer has a second chunk."""
        return self.tokens / self.seconds if self.seconds > 0 else 0.0


def decoding(records: Sequence[RequestRecord]) -> Decoding:
    """Add up what the completed requests decoded after their first chunk."""
    own = [one for one in records if one.error is None and len(one.chunk_s) > 1]
    tokens = sum(sum(one.tokens_per_chunk[1:]) for one in own)
    return Decoding(tokens, sum(one.e2el_s - one.ttft_s for one in own))


def figures(run: LoadRun) -> Figures:
    """Return latencies in milliseconds and throughputs per second. 0 where nothing was
    completed."""
    done = [record for record in run.records if record.error is None]
    num_input = sum(record.usage.num_input for record in done)
    num_output = sum(record.usage.num_output for record in done)
    found: Figures = {
        "duration": run.duration_s,
        "completed": len(done),
        "failed": len(run.records) - len(done),
        "total_input_tokens": num_input,
        "total_output_tokens": num_output,
        "request_throughput": len(done) / run.duration_s,
        "output_throughput": num_output / run.duration_s,
        "decode_throughput_per_stream": decoding(done).rate,
        "total_token_throughput": (num_input + num_output) / run.duration_s,
        "max_output_tokens_per_s": max(tokens_by_second(done), default=0.0),
        "max_concurrent_requests": peak_concurrency(run.records),
    }
    for name in METRICS:
        found |= _latency(name, latencies(name, done))
    return found | (run.speculation.figures() if run.speculation else {})


def latencies(name: str, records: Sequence[RequestRecord]) -> list[float]:
    """Return a latency in seconds, of completed requests. An answer of one token has no TPOT and no
    ITL."""
    if name == "itl":
        return [gap for record in records for gap in record.itl_s]
    values = (getattr(record, f"{name}_s") for record in records)
    return [value for value in values if value is not None]


def _latency(name: str, values_s: Sequence[float]) -> dict[str, float]:
    ordered = sorted(1000 * value for value in values_s) or [0.0]
    return {
        f"mean_{name}_ms": fmean(ordered),
        f"median_{name}_ms": median(ordered),
        f"std_{name}_ms": pstdev(ordered),
        **{f"p{p}_{name}_ms": percentile(ordered, p) for p in PERCENTILES},
    }


def percentile(ordered: Sequence[float], p: float) -> float:
    """Return the percentile, interpolated between two ranks (numpy's "linear")."""
    place = (len(ordered) - 1) * p / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def tokens_by_second(records: Sequence[RequestRecord]) -> list[float]:
    """Return the output tokens that came in each second after the first request was sent."""
    if not records:
        return []
    start_s = min(record.start_s for record in records)
    came = [
        (int(at_s - start_s), num_tokens)
        for record in records
        for at_s, num_tokens in record.tokens_by_time
    ]
    seconds = [0.0] * (max(second for second, _ in came) + 1)
    for second, num_tokens in came:
        seconds[second] += num_tokens
    return seconds


def peak_concurrency(records: Sequence[RequestRecord]) -> int:
    """Return the maximum of concurrent requests. A request that ends makes room for the next."""
    starts = [(record.start_s, 1) for record in records]
    ends = [(record.end_s, -1) for record in records]
    changes = (change for _, change in sorted([*starts, *ends]))
    return max(accumulate(changes), default=0)


def over_runs(runs: Sequence[Figures]) -> Figures:
    """Return the median of every figure that all runs have. For a count, it is a value that
    occurred."""
    shared = [name for name in runs[0] if all(name in run for run in runs)]
    return {name: _middle(name, [run[name] for run in runs]) for name in shared}


def _middle(name: str, values: Sequence[Any]) -> Any:
    if name in _WORST:
        return _WORST[name](values)
    if name == PER_POSITION:
        return [median(rates) for rates in zip(*values, strict=False)]
    return median_low(values) if isinstance(values[0], int) else median(values)
