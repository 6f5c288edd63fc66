"""/metrics: what Prometheus parses are the pool's own totals, under our names and vLLM's."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from deployments.names import MetricsCompat
from deployments.observability.metrics.export_prometheus import CONTENT_TYPE
from specdec_core.config import KPolicyName, SchedulerConfig, SpeculationConfig
from tests.deployments.http_server import TEXT, completion, server

FIXED = SpeculationConfig(k_policy=KPolicyName.FIXED)


def samples(page: str) -> dict[tuple[str, str], float]:
    """By name and what else than the model and a replica's role labels it."""
    found = [sample for family in parse(page) for sample in family.samples]
    return {(one.name, _label(one.labels)): one.value for one in found}


def _label(labels: dict[str, str]) -> str:
    return next((v for k, v in labels.items() if k not in ("model_name", "role")), "")


@pytest.mark.parametrize("compat", MetricsCompat)
async def test_the_page_tells_the_pools_totals(compat: MetricsCompat) -> None:
    async with server(keys=("secret",), compat=compat) as (client, parts):
        headers = {"Authorization": "Bearer secret"}
        # Behind a period the n-gram draft finds something to propose.
        body = completion(prompt=[1, 2, 3] * 20, max_tokens=30)
        for _ in range(2):
            answer = await client.post("/v1/completions", json=body, headers=headers)
            assert answer.status_code == 200
        page = await client.get("/metrics")
        assert 'specdec_num_requests_running{model_name="fake"} 0.0' in page.text
        assert page.headers["content-type"] == CONTENT_TYPE
        found = samples(page.text)
        counters = parts.driver.scheduler.counters()
        prefixes = ["specdec_"] + (["vllm:"] if compat is MetricsCompat.VLLM else [])
        for prefix in prefixes:
            for name, expected in (
                ("generation_tokens_total", 60),
                ("spec_decode_num_drafts_total", counters.num_proposed_rounds),
                ("spec_decode_num_draft_tokens_total", counters.num_drafted),
                ("spec_decode_num_accepted_tokens_total", counters.num_accepted),
                ("num_requests_running", 0),
                ("num_requests_waiting", 0),
            ):
                assert found[prefix + name, ""] == expected
            assert found[f"{prefix}request_success_total", "length"] == 2
            assert found[f"{prefix}prefix_cache_queries_total", "t0"] == 120
            assert found[f"{prefix}prefix_cache_hits_total", "t0"] == 60
            accepted = [
                value
                for (name, _), value in found.items()
                if name == f"{prefix}spec_decode_num_accepted_tokens_per_pos_total"
            ]
            assert accepted == list(counters.accepted_per_position)
        assert any(name.startswith("vllm:") for name, _ in found) is (len(prefixes) == 2)
        assert counters.num_drafted > 0
        assert found["specdec_groups_total", ""] == counters.num_groups
        assert found["specdec_replica_rows_total", "t0"] > 0
        num_leases = parts.replicas["t0"].num_leases
        for stage in ("verify", "replica", "wire"):
            assert found["specdec_round_stage_seconds_count", stage] == num_leases
        assert 0 < found["specdec_round_stage_seconds_count", "added"] < num_leases
        assert found["specdec_answer_stage_seconds_count", "detokenise"] >= 60 / 5
        assert found["specdec_answer_stage_seconds_sum", "respond"] > 0


async def test_while_the_coordinator_is_away_there_is_no_page() -> None:
    async with server() as (client, parts):
        await parts.kill_coordinator()
        page = await client.get("/metrics")
        assert page.status_code == 503, page.text


async def test_what_ended_requests_took_is_observed_once_per_request() -> None:
    async with server(config=SchedulerConfig(speculation=FIXED)) as (client, _):
        for max_tokens in (1, 30, 40):
            body = completion(prompt=[1, 2, 3] * 20, max_tokens=max_tokens)
            assert (await client.post("/v1/completions", json=body)).status_code == 200
        found = samples((await client.get("/metrics")).text)
        for name in (
            "specdec_time_to_first_token_seconds",
            "specdec_e2e_request_latency_seconds",
            "specdec_request_queue_time_seconds",
            "gen_ai_server_request_duration_seconds",
        ):
            assert found[f"{name}_count", ""] == 3
            assert found[f"{name}_bucket", "+Inf"] == 3
        assert found["specdec_request_time_per_output_token_seconds_count", ""] == 2
        assert found["specdec_request_acceptance_rate_count", ""] == 2
        assert found["specdec_prompt_tokens_total", ""] == 180
        first = found["specdec_time_to_first_token_seconds_sum", ""]
        whole = found["specdec_e2e_request_latency_seconds_sum", ""]
        decode = found["specdec_request_decode_time_seconds_sum", ""]
        assert 0 < first < whole < 20
        assert whole == pytest.approx(first + decode)
        gaps = found["specdec_inter_token_latency_seconds_sum", ""]
        assert gaps == pytest.approx(decode)


async def test_refusals_are_counted_by_reason() -> None:
    config = SchedulerConfig(max_queued=0, window=1, max_group_size=1)
    async with server(config=config) as (client, parts):
        before = samples((await client.get("/metrics")).text)
        assert before["specdec_admission_rejections_total", "queue_full"] == 0
        slow = asyncio.create_task(client.post("/v1/completions", json=completion(max_tokens=400)))
        while parts.driver.scheduler.counters().num_running == 0:
            await asyncio.sleep(0.001)
        assert (await client.post("/v1/completions", json=completion())).status_code == 429
        assert (await slow).status_code == 200
        found = samples((await client.get("/metrics")).text)
        assert found["specdec_admission_rejections_total", "queue_full"] == 1
        assert found["specdec_e2e_request_latency_seconds_count", ""] == 1
        prompt_len = len(TEXT.encode("HELLO"))
        assert found["specdec_prompt_tokens_total", ""] == prompt_len
