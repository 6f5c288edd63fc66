"""A load's figures by hand: what every one means, on timelines that are made up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from statistics import quantiles
from typing import Any

import pytest

from deployments.cli.bench.client import AnswerError, Chunk, Usage
from deployments.cli.bench.figures import (
    Figures,
    decoding,
    figures,
    over_runs,
    peak_concurrency,
    percentile,
    tokens_by_second,
)
from deployments.cli.bench.load import LoadRun, RequestRecord, record_request


def answered(
    start_s: float, chunk_s: Iterable[float], num_output: int, **fields: Any
) -> RequestRecord:
    """Its chunks have equal shares of the tokens."""
    times = tuple(chunk_s)
    return RequestRecord(
        start_s=start_s,
        end_s=times[-1],
        chunk_s=times,
        weights=(1,) * len(times),
        usage=Usage(10, num_output),
        **fields,
    )


def figures_of(records: Sequence[RequestRecord], duration_s: float) -> Figures:
    return figures(LoadRun(records=tuple(records), duration_s=duration_s))


def failed(start_s: float, end_s: float) -> RequestRecord:
    return RequestRecord(start_s=start_s, end_s=end_s, error="HTTP 429: full")


def test_decoding_counts_from_the_first_chunk_of_each_answer() -> None:
    """6 tokens in 0.8 s and 2 in 1 s; an answer of one chunk and one that failed have no part."""
    records = [
        answered(1.0, [1.5, 1.7, 2.3], 9),
        answered(0.0, [5.0, 6.0], 4),
        answered(0.0, [1.0], 7),
        failed(0.0, 3.0),
    ]
    assert decoding(records) == (pytest.approx(8), pytest.approx(1.8))
    found = figures_of(records, 6.0)
    assert found["decode_throughput_per_stream"] == pytest.approx(8 / 1.8)
    assert decoding(records[2:]).rate == 0.0


def test_latencies_of_one_request() -> None:
    """Sent at 1 s; 2 tokens at 1.5 s, 3 at 1.7 s, 4 at 2.3 s."""
    found = figures_of([answered(1.0, [1.5, 1.7, 2.3], 9)], 2.0)
    assert found["mean_ttft_ms"] == pytest.approx(500)
    assert found["median_e2el_ms"] == pytest.approx(1300)
    assert found["mean_tpot_ms"] == pytest.approx(800 / 8)
    assert found["mean_itl_ms"] == pytest.approx(400)
    assert found["std_itl_ms"] == pytest.approx(200)
    assert found["p50_itl_ms"] == pytest.approx(400)
    assert found["p99_itl_ms"] == pytest.approx(200 + 0.99 * 400)


def test_throughputs_count_the_servers_tokens_over_the_whole_run() -> None:
    records = [answered(0, [1, 2], 30), answered(0, [2, 3], 50), failed(0, 1)]
    found = figures_of(records, 4.0)
    assert (found["completed"], found["failed"]) == (2, 1)
    assert (found["total_input_tokens"], found["total_output_tokens"]) == (20, 80)
    assert found["request_throughput"] == 0.5
    assert found["output_throughput"] == 20.0
    assert found["total_token_throughput"] == 25.0


def test_an_answer_of_one_token_has_no_time_per_token() -> None:
    one, two = answered(0, [0.25], 1), answered(0, [0.25, 0.75], 2)
    assert one.tpot_s is None
    assert one.itl_s == []
    found = figures_of([one, two], 1.0)
    assert found["mean_tpot_ms"] == found["p99_tpot_ms"] == 500
    assert found["std_tpot_ms"] == 0
    alone = figures_of([one], 1.0)
    assert alone["mean_tpot_ms"] == alone["mean_itl_ms"] == 0


def test_the_peak_is_the_best_second() -> None:
    """Second 0: 2 of the first's 4 tokens; second 1: 2 + 6; second 3: 6 of the second's 12."""
    first, second = answered(5.0, [5.5, 6.2], 4), answered(5.1, [6.9, 8.0], 12)
    assert tokens_by_second([first, second]) == [2, 8, 0, 6]
    found = figures_of([first, second], 4.0)
    assert found["max_output_tokens_per_s"] == 8
    assert tokens_by_second([]) == []


def test_tokens_are_divided_among_chunks_by_weight() -> None:
    record = RequestRecord(
        start_s=0, end_s=2.5, chunk_s=(0.5, 1.5, 2.5), weights=(1, 3, 4), usage=Usage(1, 16)
    )
    assert tokens_by_second([record]) == [2, 6, 8]


def test_peak_concurrency_includes_failures_and_no_touching_ends() -> None:
    one, two, three = answered(0, [2], 1), answered(2, [3], 1), failed(2.5, 2.6)
    assert peak_concurrency([one, two]) == 1
    assert peak_concurrency([one, two, three]) == 2
    assert peak_concurrency([]) == 0


def test_percentiles_lie_between_their_neighbours() -> None:
    ordered = sorted((37 * n) % 101 / 7 for n in range(58))
    expected = quantiles(ordered, n=100, method="inclusive")
    for p in range(1, 100):
        assert percentile(ordered, p) == pytest.approx(expected[p - 1])
    assert percentile(ordered, 0) == ordered[0]
    assert percentile(ordered, 100) == ordered[-1]
    assert percentile([3.0], 99) == 3.0


def test_a_run_without_answers_has_zeros() -> None:
    found = figures_of([failed(0, 1)], 1.0)
    assert found["p99_e2el_ms"] == found["max_output_tokens_per_s"] == 0


def test_medians_over_runs_hide_no_failure() -> None:
    runs = [
        {"completed": 4, "failed": 0, "duration": 1.0, "rates": 7},
        {"completed": 3, "failed": 1, "duration": 9.0, "rates": 9},
        {"completed": 4, "failed": 0, "duration": 2.0, "only": 1},
    ]
    assert over_runs(runs) == {"completed": 3, "failed": 1, "duration": 2.0}
    positions = "spec_decode_per_position_acceptance_rates"
    rates = [{positions: [0.5, 0.1]}, {positions: [0.9, 0.3]}, {positions: [0.6, 0.2]}]
    assert over_runs(rates) == {positions: [0.6, 0.2]}


def recorded(chunks: Iterable[Chunk | float | Exception], timeout_s: float = 5.0) -> RequestRecord:
    """Chunks a second apart on a made up clock; a number sleeps so many real seconds."""
    seconds = iter(range(1000))

    async def stream() -> AsyncGenerator[Chunk]:
        for chunk in chunks:
            if isinstance(chunk, Exception):
                raise chunk
            if isinstance(chunk, float):
                await asyncio.sleep(chunk)
            else:
                yield chunk

    read = record_request(stream(), timeout_s=timeout_s, clock=lambda: float(next(seconds)))
    return asyncio.run(read)


TOTALS = Chunk(is_output=False, usage=Usage(3, 7))


def test_the_first_token_is_the_first_chunk_with_something_in_it() -> None:
    record = recorded([Chunk(), Chunk(weight=2), Chunk(weight=1), Chunk(), TOTALS])
    assert record.error is None
    assert (record.ttft_s, record.e2el_s) == (2.0, 4.0)
    assert record.chunk_s == (2.0, 3.0)
    assert record.usage == (3, 7)


def test_tokens_without_text_came_with_the_last_chunk() -> None:
    record = recorded([Chunk(), TOTALS])
    assert (record.ttft_s, record.tokens_per_chunk) == (1.0, [7.0])


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([], "without any output"),
        ([TOTALS], "without any output"),
        ([Chunk(weight=1)], "no usage"),
        ([Chunk(weight=1), AnswerError("HTTP 400: too long")], "HTTP 400: too long"),
        ([ConnectionResetError("gone")], "ConnectionResetError: gone"),
        ([TimeoutError()], "TimeoutError"),
        ([Chunk(weight=1), 30.0], "no end within 0.05 s"),
    ],
)
def test_whatever_goes_wrong_is_the_records_error(chunks: list[Any], message: str) -> None:
    record = recorded(chunks, timeout_s=0.05)
    assert message in str(record.error)
    assert record.usage == (0, 0)
