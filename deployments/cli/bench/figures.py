"""Compute the figures of a run from its records, by vLLM's names and definitions.

vLLM counts a chunk as a token. Here the peak throughput counts the server's tokens, and the peak of
concurrent requests includes those that failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean, median, pstdev
from typing import Any, NamedTuple

from deployments.cli.bench.names import METRICS
from deployments.cli.bench.records import RequestRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Choice of the reported figures."""

    metrics: tuple[str, ...] = tuple(METRICS)
    percentiles: tuple[float, ...] = (50.0, 90.0, 99.0)
    goals: Mapping[str, float]
    """Maximum milliseconds of a good request, by latency. If empty, no goodput is reported."""


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


def figures(records: Sequence[RequestRecord], duration_s: float, wanted: Wanted) -> dict[str, Any]:
    """Return latencies in milliseconds and throughputs per second. 0 where nothing was
    completed."""
    done = [record for record in records if record.error is None]
    num_input = sum(record.usage.num_input for record in done)
    num_output = sum(record.usage.num_output for record in done)
    num_good = sum(_is_good(record, wanted.goals) for record in done)
    found: dict[str, Any] = {
        "duration": duration_s,
        "completed": len(done),
        "failed": len(records) - len(done),
        "total_input_tokens": num_input,
        "total_output_tokens": num_output,
        "request_throughput": len(done) / duration_s,
        "request_goodput": num_good / duration_s if wanted.goals else None,
        "output_throughput": num_output / duration_s,
        "decode_throughput_per_stream": decoding(done).rate,
        "total_token_throughput": (num_input + num_output) / duration_s,
        "max_output_tokens_per_s": max(tokens_by_second(done), default=0.0),
        "max_concurrent_requests": peak_concurrency(records),
    }
    for name in wanted.metrics:
        found |= _latency(name, latencies(name, done), wanted.percentiles)
    return found


def latencies(name: str, records: Sequence[RequestRecord]) -> list[float]:
    """Return a latency in seconds, of completed requests. An answer of one token has no TPOT and no
    ITL."""
    if name == "itl":
        return [gap for record in records for gap in record.itl_s]
    values = (getattr(record, f"{name}_s") for record in records)
    return [value for value in values if value is not None]


def _latency(
    name: str, values_s: Sequence[float], percentiles: Sequence[float]
) -> dict[str, float]:
    ordered = sorted(1000 * value for value in values_s) or [0.0]
    return {
        f"mean_{name}_ms": fmean(ordered),
        f"median_{name}_ms": median(ordered),
        f"std_{name}_ms": pstdev(ordered),
        **{f"p{p:g}_{name}_ms": percentile(ordered, p) for p in percentiles},
    }


def percentile(ordered: Sequence[float], p: float) -> float:
    """Return the percentile, interpolated between two ranks (numpy's "linear")."""
    place = (len(ordered) - 1) * p / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _is_good(record: RequestRecord, goals: Mapping[str, float]) -> bool:
    """Return whether every goal is met. The TPOT of an answer of one token always is."""
    reached = {name: getattr(record, f"{name}_s") or 0.0 for name in goals}
    return all(1000 * reached[name] <= limit_ms for name, limit_ms in goals.items())


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
