"""Figures of API keys are for their owners, and for the key that reads those of all."""

from __future__ import annotations

import re

import grpc
import httpx
import pytest

from deployments.api.grpc.service import GrpcApi
from deployments.config.api_keys import key_digest
from deployments.errors import UnauthorizedError
from deployments.ingress.auth import Access
from deployments.names import MetricsCompat
from deployments.observability.metrics.visibility import visible
from specdec.v1 import generation_pb2 as pb
from tests.deployments.http_server import completion, server
from tests.deployments.ingress.test_grpc_api import FakeContext, api

PATH = "/v1/completions"
KEYS = ("a", "b")
NAMES = {"name of a", "name of b"}
MONITOR = "m"
SHORT = pb.GenerateRequest(prompt="HELLO", sampling=pb.SamplingParams(max_tokens=2))


def names_in(page: str) -> set[str]:
    return set(re.findall(r'client="([^"]*)"', page))


def bearer(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Authorization": f"Bearer {key}"}


async def use(client: httpx.AsyncClient) -> None:
    """Both keys have a request answered."""
    for key in KEYS:
        answer = await client.post(PATH, json=completion(), headers=bearer(key))
        assert answer.status_code == 200


@pytest.mark.parametrize("metrics_key", ["", MONITOR])
@pytest.mark.parametrize("compat", list(MetricsCompat))
async def test_nobody_sees_the_keys_of_others(metrics_key: str, compat: MetricsCompat) -> None:
    settings = {"keys": KEYS, "metrics_key": metrics_key, "compat": compat}
    async with server(**settings) as (client, _):
        await use(client)
        pages = {key: await client.get("/metrics", headers=bearer(key)) for key in (None, *KEYS)}
        assert {key: names_in(page.text) for key, page in pages.items()} == {
            None: set(),
            "a": {"name of a"},
            "b": {"name of b"},
        }
        for page in pages.values():
            assert page.status_code == 200
            assert "specdec_num_requests_running" in page.text
            assert "specdec_client_requests" in page.text  # the family, without a series
        wrong = await client.get("/metrics", headers=bearer("c"))
        assert wrong.status_code == 401
        assert wrong.headers["WWW-Authenticate"] == "Bearer"
        assert not names_in(wrong.text)


async def test_the_metrics_key_reads_all_figures_and_does_nothing_else() -> None:
    async with server(keys=KEYS, metrics_key=MONITOR) as (client, _):
        await use(client)
        page = await client.get("/metrics", headers=bearer(MONITOR))
        assert names_in(page.text) == NAMES
        for method, path in (("POST", PATH), ("POST", "/tokenize"), ("GET", "/v1/models")):
            answer = await client.request(method, path, json={}, headers=bearer(MONITOR))
            assert answer.status_code == 401


async def test_a_server_without_keys_has_nothing_to_hide() -> None:
    async with server() as (client, _):
        assert (await client.post(PATH, json=completion())).status_code == 200
        assert names_in((await client.get("/metrics")).text) == {"none"}


@pytest.mark.parametrize("path", ["/health", "/ready", "/version", "/openapi.json", "/metrics"])
async def test_no_open_page_names_a_key(path: str) -> None:
    async with server(keys=KEYS) as (client, _):
        await use(client)
        answer = await client.get(path)
        assert answer.status_code == 200
        assert "name of" not in answer.text


@pytest.mark.parametrize(("key", "names"), [("a", {"name of a"}), ("b", {"name of b"})])
async def test_pool_status_tells_a_key_its_own_figures(key: str, names: set[str]) -> None:
    async with api(keys=KEYS) as (calls, _):
        for one in KEYS:
            await calls.generate_once(SHORT, FakeContext(key=one))
        status = await calls.pool_status(pb.PoolStatusRequest(), FakeContext(key=key))
        assert {one.name for one in status.clients} == names
        told = {name for name in status.counters if "name of" in name}
        assert {name.partition("tokens_")[2] for name in told} == names


async def test_pool_status_tells_the_metrics_key_all_figures() -> None:
    async with api(keys=KEYS) as (calls, _):
        for one in KEYS:
            await calls.generate_once(SHORT, FakeContext(key=one))
        keys = {key_digest(key): f"name of {key}" for key in KEYS}
        access = Access(keys, "127.0.0.1", metrics_key_digest=key_digest(MONITOR))
        watched = GrpcApi(calls._service, access, max_body_bytes=10_000)
        status = await watched.pool_status(pb.PoolStatusRequest(), FakeContext(key=MONITOR))
        assert {one.name for one in status.clients} == NAMES
        refused = FakeContext(key=MONITOR)
        await watched.list_models(pb.ListModelsRequest(), refused)
        assert refused.code is grpc.StatusCode.UNAUTHENTICATED
        unnamed = FakeContext()
        assert not (await watched.pool_status(pb.PoolStatusRequest(), unnamed)).clients
        assert unnamed.code is grpc.StatusCode.UNAUTHENTICATED
        far = FakeContext(key=MONITOR, peer="ipv4:10.0.0.9:1")
        await watched.pool_status(pb.PoolStatusRequest(), far)
        assert far.code is grpc.StatusCode.PERMISSION_DENIED


def test_every_cell_of_a_status_is_filtered() -> None:
    cell = pb.PoolStatusResponse(
        clients=[pb.ClientStatus(name="x", num_tokens=1), pb.ClientStatus(name="y", num_tokens=2)],
        counters={"num_client_prompt_tokens_x": 3, "num_client_cached_tokens_y": 4, "other": 5},
    )
    whole = pb.PoolStatusResponse(cells=[cell, cell])
    whole.MergeFrom(cell)
    before = whole.SerializeToString(deterministic=True)
    seen = visible(whole, ("x",))
    for one in (seen, *seen.cells):
        assert [client.name for client in one.clients] == ["x"]
        assert set(one.counters) == {"num_client_prompt_tokens_x", "other"}
    assert visible(whole, None) is whole
    assert whole.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("shown", ["Bearer ", "bearer", "Bearer  \t", "Basic ", ""])
def test_an_empty_key_opens_nothing(shown: str) -> None:
    """Even if the server was set up with the empty key, as by an empty variable."""
    empty = key_digest("")
    access = Access({empty: "n", key_digest("a"): "a"}, "0.0.0.0", metrics_key_digest=empty)
    assert not access.is_monitor(shown)
    for check in (access.check_key, access.visible_names):
        with pytest.raises(UnauthorizedError):
            check(shown)
