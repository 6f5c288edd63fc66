"""What `specdec bench serve` refuses before it sends anything, and how its flags are read."""

from __future__ import annotations

import socket

import pytest

from tests.cli.conftest import Specdec


def test_without_the_library_http_is_refused_at_once(
    specdec: Specdec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deployments.cli.bench.client.find_spec", lambda name: None)
    outcome = specdec("bench", "serve")
    assert outcome.status == 2
    assert "pip install '.[bench]'" in outcome.err


def test_a_server_that_is_not_there_is_an_error(specdec: Specdec) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    outcome = specdec("bench", "serve", "--base-url", f"http://{address}")
    assert outcome.status == 1
    assert f"{address} does not answer" in outcome.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--backend", "tgi"], "openai-chat"),
        (["--dataset-name", "spec_bench"], "needs --dataset-path"),
        (["--dataset-name", "random", "--dataset-path", __file__], "takes no --dataset-path"),
        (["--dataset-name", "copying", "--dataset-path", __file__], "takes no --dataset-path"),
        (["--dataset-name", "copying"], "use --backend openai-chat"),
        (["--request-rate", "0"], "--request-rate must be above 0"),
        (["--extra-body", "[1]"], "a JSON object is needed"),
        (["--extra-body", "{"], "not JSON"),
        (["--save-result", "/no/such/folder/f.json"], "there is no folder"),
        (["--num-prompts", "0"], "equal to 1"),
        (["--max-concurrency", "0"], "equal to 1"),
        (["--repeat", "0"], "equal to 1"),
    ],
)
def test_contradictions_are_refused(specdec: Specdec, flags: list[str], message: str) -> None:
    outcome = specdec("bench", "serve", *flags)
    assert outcome.status == 2
    assert message in outcome.err
