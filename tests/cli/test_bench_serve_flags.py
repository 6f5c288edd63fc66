"""What `specdec bench serve` refuses before it sends anything, and how its flags are read."""

from __future__ import annotations

import socket

import pytest

from deployments.cli.bench.flags import goals_of
from tests.cli.conftest import Specdec


@pytest.mark.parametrize(
    ("named", "more"),
    [(["ttft:200"], ["tpot:5.5"]), (["ttft:200", "tpot:5.5"], []), (["ttft:200,tpot:5.5"], [])],
)
def test_goals_are_written_in_several_ways(named: list[str], more: list[str]) -> None:
    assert goals_of(named, more) == {"ttft": 200, "tpot": 5.5}


@pytest.mark.parametrize("backend", ["openai", "grpc"])
def test_a_server_that_is_not_there_is_an_error(specdec: Specdec, backend: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    outcome = specdec("bench", "serve", "--backend", backend, "--base-url", f"http://{address}")
    assert outcome.status == 1
    assert f"{address} does not answer" in outcome.err


def test_without_the_library_http_is_refused_at_once(
    specdec: Specdec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deployments.cli.bench.http_load.find_spec", lambda name: None)
    outcome = specdec("bench", "serve")
    assert outcome.status == 2
    assert "pip install '.[bench]'" in outcome.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--backend", "tgi"], "openai-chat"),
        (["--dataset-name", "spec_bench"], "needs --dataset-path"),
        (["--dataset-name", "random", "--dataset-path", __file__], "takes no --dataset-path"),
        (["--dataset-name", "copying", "--dataset-path", __file__], "takes no --dataset-path"),
        (["--dataset-name", "copying"], "use --backend openai-chat"),
        (["--request-rate", "0"], "--request-rate must be above 0"),
        (["--burstiness", "-1"], "--burstiness must be above 0"),
        (["--burstiness", "nan"], "--burstiness must be above 0"),
        (["--request-timeout", "inf"], "must be finite"),
        (["--goodput", "itl:5"], "'itl:5' is no goal"),
        (["--goodput", "ttft:fast"], "'ttft:fast' is no goal"),
        (["--goodput", "ttft"], "'ttft' is no goal"),
        (["ttft:5"], "unexpected argument"),
        (["--metric-percentiles", "101"], "101 is not in 0..100"),
        (["--percentile-metrics", "ttft,latency"], "'latency' is none of"),
        (["--random-vocab", "9"], "no range of token ids"),
        (["--random-vocab", "9-3"], "no range of token ids"),
        (["--extra-body", "[1]"], "a JSON object is needed"),
        (["--extra-body", "{"], "not JSON"),
        (["--raw-prompt", "--backend", "openai-chat"], "not for a chat"),
        (["--grpc-address", "x:1"], "is for --backend grpc"),
        (["--plot", "/no/such/folder/f.png"], "there is no folder"),
        (["--num-prompts", "0"], "equal to 1"),
        (["--max-concurrency", "0"], "equal to 1"),
        (["--repeat", "0"], "equal to 1"),
    ],
)
def test_contradictions_are_refused(specdec: Specdec, flags: list[str], message: str) -> None:
    outcome = specdec("bench", "serve", *flags)
    assert outcome.status == 2
    assert message in outcome.err
