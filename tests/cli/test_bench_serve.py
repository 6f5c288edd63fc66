"""`specdec bench serve` against our own service over fake replicas, in a thread of this process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from deployments.config.service import SpecMetrics
from deployments.coordinator.status import pool_status
from deployments.names import MetricsCompat
from specdec_core.config import KPolicyName, SchedulerConfig, SpecMethod, SpeculationConfig
from specdec_core.messages import Role
from tests.benchmarks.served_peers.fake_server import FakeServer, listening
from tests.cli.conftest import Outcome, Specdec
from tests.deployments.http_server import application

Bench = Callable[..., tuple[Outcome, dict[str, Any]]]
Write = Callable[..., Path]

LOOPING = [{"prompt": "HELLO" * 8, "category": "a"}, {"prompt": "ABAB" * 6, "category": "b"}]
"""Prompt lookup always finds something in them."""
VLLM_KEYS = {
    *("date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts"),
    *("request_rate", "max_concurrency", "duration", "completed", "failed"),
    *("total_input_tokens", "total_output_tokens", "request_throughput"),
    *("output_throughput", "total_token_throughput", "max_output_tokens_per_s"),
    "max_concurrent_requests",
    *(
        f"{kind}_{name}_ms"
        for name in ("ttft", "tpot", "itl", "e2el")
        for kind in ("mean", "median", "std", "p50", "p90", "p99")
    ),
}
SPEC_KEYS = {
    "spec_decode_acceptance_rate",
    "spec_decode_acceptance_length",
    "spec_decode_num_drafts",
    "spec_decode_draft_tokens",
    "spec_decode_accepted_tokens",
    "spec_decode_per_position_acceptance_rates",
}
OURS = {"repeat", "runs", "settings", "decode_throughput_per_stream"}


DRAFTING = SchedulerConfig(
    speculation=SpeculationConfig(method=SpecMethod.DRAFT_MODEL, k_policy=KPolicyName.FIXED)
)


@contextlib.asynccontextmanager
async def http_service(**settings: Any) -> AsyncIterator[str]:
    """With a draft that is mostly right."""
    async with application(config=DRAFTING, **settings) as (app, parts):
        parts.start_replica("d0", Role.DRAFT)
        while len(pool_status(parts.driver).replicas) < 2:
            await asyncio.sleep(0.005)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            server.should_exit = True
            await serving


@contextlib.contextmanager
def in_thread(service: AbstractAsyncContextManager[str]) -> Iterator[str]:
    """The address of a service that runs in a loop of its own."""
    started: Future[tuple[str, Callable[[], object]]] = Future()

    async def serve() -> None:
        try:
            async with service as address:
                loop, ended = asyncio.get_running_loop(), asyncio.Event()
                started.set_result((address, lambda: loop.call_soon_threadsafe(ended.set)))
                await ended.wait()
        except Exception as error:
            started.set_exception(error)
            raise

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    address, stop = started.result(timeout=20)
    try:
        yield address
    finally:
        stop()
        thread.join(timeout=20)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with in_thread(http_service()) as address:
        yield address


@pytest.fixture
def bench(specdec: Specdec, tmp_path: Path) -> Bench:
    """Run the command; its outcome and the file that it saved."""

    def run(*flags: object) -> tuple[Outcome, dict[str, Any]]:
        path = tmp_path / "result.json"
        outcome = specdec("bench", "serve", "--save-result", path, *flags)
        return outcome, json.loads(path.read_text()) if path.exists() else {}

    return run


def small(url: str) -> list[object]:
    """Return flags of six random prompts that fit the fake model's 512 positions."""
    lengths = ["--max-tokens", 12, "--random-input-len", 8]
    return ["--base-url", url, "--num-prompts", 6, *lengths]


@pytest.mark.parametrize("backend", ["openai", "openai-chat"])
def test_a_whole_run_over_http(bench: Bench, url: str, backend: str, write_lines: Write) -> None:
    flags = ["--dataset-path", write_lines(*LOOPING), "--num-prompts", 5, "--max-tokens", 30]
    outcome, found = bench("--base-url", f"{url}/v1", "--backend", backend, *flags)
    assert outcome.status == 0, outcome.err
    assert set(found) == VLLM_KEYS | SPEC_KEYS | OURS
    assert (found["completed"], found["failed"]) == (5, 0)
    assert (found["backend"], found["model_id"]) == (backend, "fake")
    assert found["total_input_tokens"] == 40 * 3 + 24 * 2
    assert found["total_output_tokens"] == 5 * 30
    assert (found["request_rate"], found["max_concurrency"]) == ("inf", None)
    assert 0 < found["p50_ttft_ms"] <= found["p50_e2el_ms"] <= found["p99_e2el_ms"]
    assert found["output_throughput"] == pytest.approx(150 / found["duration"])
    assert found["max_concurrent_requests"] == 5
    rates = found["spec_decode_per_position_acceptance_rates"]
    assert sum(rates) == pytest.approx(found["spec_decode_acceptance_length"] - 1)
    assert found["spec_decode_acceptance_rate"] > 20


def test_the_table_has_vllms_order(bench: Bench, url: str) -> None:
    outcome, _ = bench(*small(url), "--request-rate", 500, "--max-concurrency", 2)
    labels = [
        *("Successful requests:", "Failed requests:", "Maximum request concurrency:"),
        *("Request rate configured (RPS):", "Benchmark duration (s):", "Total input tokens:"),
        *("Total generated tokens:", "Request throughput (req/s):"),
        *("Output token throughput (tok/s):", "Peak output token throughput (tok/s):"),
        *("Peak concurrent requests:", "Total token throughput (tok/s):"),
        *("Time to First Token", "Mean TTFT (ms):", "Median TTFT (ms):", "P50 TTFT (ms):"),
        *("P90 TTFT (ms):", "P99 TTFT (ms):", "Time per Output Token (excl. 1st token)"),
        *("Mean TPOT (ms):", "Inter-token Latency", "P99 ITL (ms):", "End-to-end Latency"),
    ]
    places = [outcome.out.index(label) for label in labels]
    assert places == sorted(places)
    assert "goodput" not in outcome.out


def test_random_prompts_go_on_to_the_asked_length_and_come_from_the_seed(
    bench: Bench, url: str
) -> None:
    _, found = bench(*small(url), "--max-concurrency", 2)
    assert found["total_output_tokens"] == 6 * 12
    assert found["max_concurrent_requests"] == 2
    _, again = bench(*small(url))
    assert found["total_input_tokens"] == again["total_input_tokens"] > 6 * 8


def test_repeats_are_told_with_their_medians(bench: Bench, url: str) -> None:
    outcome, found = bench(*small(url), "--repeat", 3, "--num-warmups", 2)
    assert len(found["runs"]) == found["repeat"] == 3
    durations = sorted(run["duration"] for run in found["runs"])
    assert found["duration"] == durations[1]
    for name in ("median", "run 1", "run 3"):
        assert name in outcome.out


def test_failures_are_counted_and_told(bench: Bench, url: str, write_lines: Write) -> None:
    path = write_lines({"prompt": "A" * 600}, {"prompt": "B" * 600}, {"prompt": "HELLO"})
    outcome, found = bench("--base-url", url, "--dataset-path", path, "--max-tokens", 4)
    assert outcome.status == 0, outcome.err
    assert (found["completed"], found["failed"]) == (1, 2)
    assert found["total_output_tokens"] == 4
    assert "2 failed: HTTP 400: " in outcome.out
    assert "context length is 512" in outcome.out


def test_a_run_without_a_single_answer_is_an_error(bench: Bench, url: str) -> None:
    outcome, found = bench(*small(url), "--model", "other")
    assert outcome.status == 1
    assert found["failed"] == 6
    assert "HTTP 404" in outcome.out
    assert "no request was answered" in outcome.err


def test_the_key_is_sent_and_not_saved(bench: Bench) -> None:
    with in_thread(http_service(keys=("secret",))) as url:
        outcome, _ = bench(*small(url))
        assert outcome.status == 1
        assert "HTTP 401" in outcome.err
        outcome, found = bench(*small(url), "--api-key", "secret")
        assert outcome.status == 0, outcome.err
        assert "secret" not in json.dumps(found)


def test_answers_that_tell_nothing_are_made_up_for_by_the_metrics_page(
    bench: Bench, write_lines: Write
) -> None:
    with in_thread(http_service(metrics=SpecMetrics.NONE, compat=MetricsCompat.VLLM)) as url:
        flags = ["--base-url", url, "--dataset-path", write_lines(*LOOPING), "--repeat", 2]
        _, found = bench(*flags, "--max-tokens", 30)
    first, second = (run["spec_decode_draft_tokens"] for run in found["runs"])
    assert first == pytest.approx(second, rel=0.5)
    assert set(found) == VLLM_KEYS | SPEC_KEYS | OURS


def test_more_fields_reach_the_server(bench: Bench, url: str, write_lines: Write) -> None:
    flags = ["--base-url", url, "--dataset-path", write_lines(*LOOPING), "--max-tokens", 12]
    outcome, found = bench(*flags, "--extra-body", '{"speculative": {"enabled": false}}')
    assert not SPEC_KEYS & set(found)
    assert "Speculative Decoding" not in outcome.out
    outcome, _ = bench(*flags, "--extra-body", '{"suffix": "x"}')
    assert 'suffix="x"' in outcome.out


def test_each_run_of_chats_with_text_to_copy_has_a_cache_salt_of_its_own(
    specdec: Specdec,
) -> None:
    server = FakeServer("specdec")
    with listening(server) as url:
        flags = ["--backend", "openai-chat", "--dataset-name", "copying", "--num-prompts", 3]
        outcome = specdec("bench", "serve", "--base-url", url, *flags, "--repeat", 2)
        assert outcome.status == 0, outcome.err
        specdec("bench", "serve", "--base-url", url, *flags, "--extra-body", '{"cache_salt": "x"}')
    salts = [body["cache_salt"] for body in server.bodies]
    assert len(set(salts[:3])) == len(set(salts[3:6])) == 1
    assert len(set(salts)) == 3
    assert salts[6:] == ["x"] * 3
