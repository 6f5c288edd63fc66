"""`specdec top` of the running service shows what it just did."""

from __future__ import annotations

import httpx
import pytest
from typer.testing import CliRunner

from deployments.cli.main import app
from tests.service.conftest import KEY, Service
from tests.service.test_service import completion, token_ids

pytestmark = pytest.mark.slow


def test_the_view_names_every_replica_and_counts_what_was_asked(
    service: Service, http: httpx.Client
) -> None:
    service.until_complete()
    token_ids(http.post("/v1/completions", json=completion()))
    arguments = ["top", service.grpc_address, "--once", "--interval", "0.2", "--api-key", KEY]
    answer = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert answer.exit_code == 0, answer.output
    status = service.status()
    lines = {line.split()[0]: line for line in answer.output.splitlines() if line.split()}
    for replica in status.replicas:
        assert "serving" in lines[replica.replica_id]
    assert "rounds with a proposal" in answer.output
    assert status.counters["num_finished_length"] > 0
    assert "length" in lines["requests"]
