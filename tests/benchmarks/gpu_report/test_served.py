"""What is asked of the service, of a server in its place. A rehearsal starts a real one."""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu_report import served
from benchmarks.gpu_report.rehearsed import Peer, write_random_model
from benchmarks.gpu_report.results import Findings, StepSkippedError
from benchmarks.gpu_report.settings import REHEARSED, Settings
from specdec_core.loading.loader import load_tokenizer
from tests.benchmarks.gpu_report.made import result

PROMPTS = [(number, number + 1) for number in range(4)]
SIZES = replace(REHEARSED, rows=(4, 1, 8))


class _Server(ThreadingHTTPServer):
    wrong_prompt: int | None = None
    """With speculation the answer to this one is another."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[dict[str, Any]] = []


class _Handler(Peer):
    server: _Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        first = body["prompt"][0]
        is_wrong = first == self.server.wrong_prompt and not body["speculative"]
        self.answer(
            {
                "system_fingerprint": "exact",
                "choices": [{"token_ids": [first, int(is_wrong)]}],
                "usage": {"completion_tokens": body["max_tokens"]},
            }
        )


@pytest.fixture
def server() -> Iterator[_Server]:
    with _Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(device="cpu", output=tmp_path, is_rehearsal=True, sizes=SIZES)


@pytest.fixture
def findings(tmp_path: Path) -> Findings:
    return Findings(tmp_path / "served.json", result("served"))


def asking(server: _Server, settings: Settings) -> served._Asking:
    return served._Asking(f"http://127.0.0.1:{server.server_port}", "serve it", settings)


@pytest.mark.parametrize(("wrong_prompt", "equal"), [(None, 4), (2, 3)])
def test_an_answer_in_company_that_is_another_alone_is_counted(
    server: _Server, settings: Settings, findings: Findings, wrong_prompt: int | None, equal: int
) -> None:
    server.wrong_prompt = wrong_prompt
    asking(server, settings).compare(PROMPTS, findings)
    (row,) = findings.result.rows("token IDs", what="the service")
    assert (row["equal"], row["prompts"], row["rows"]) == (equal, 4, 4)
    together, alone = server.asked[:4], server.asked[4:]
    assert [body["speculative"] for body in together + alone] == [{}] * 4 + [{"enabled": False}] * 4
    assert {body["cache_salt"] for body in together}.isdisjoint(one["cache_salt"] for one in alone)
    assert {body["temperature"] for body in together} == {0.0, 0.8}


def test_each_pace_is_measured_with_speculation_and_without(
    server: _Server, settings: Settings, findings: Findings
) -> None:
    asking(server, settings).measure_speed(PROMPTS, findings)
    rows = findings.result.rows("decoding")
    assert [row["rows"] for row in rows] == [4, 1], "there are no 8 prompts"
    assert all(row["tokens_per_s"] > 0 and row["over_without"] > 0 for row in rows)
    is_on = [not body["speculative"] for body in server.asked if body["prompt"][0] == 3]
    assert is_on == [False, True, True, False, False, True, True, False]
    assert len({body["cache_salt"] for body in server.asked}) == 16, "nothing is found cached"


def test_without_ray_it_is_skipped(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, findings: Findings
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(StepSkippedError, match="Ray is not installed"):
        served.measure(settings, findings)


def _sleeps(seconds: float, first: str = "pass") -> tuple[str, ...]:
    code = f"{first}; import time; time.sleep({seconds}); raise SystemExit(3)"
    return sys.executable, "-c", code


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (_sleeps(0.0), "the service ended with 3"),
        (_sleeps(60.0), "not ready after 0 s"),
        (_sleeps(60.0, "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"), "not ready"),
    ],
    ids=["it ends", "it is late", "it is late and hears no signal"],
)
def test_a_service_that_does_not_start_is_an_error_and_ended(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, command: tuple[str, ...], reason: str
) -> None:
    monkeypatch.setattr(served, "_SERVE", command)
    monkeypatch.setattr(served, "_END_S", 0.5)
    monkeypatch.setattr(served, "_READY_S", 0.3 if "ended" not in reason else 60.0)
    with pytest.raises(RuntimeError, match=reason), served._service(["it"], settings):
        raise AssertionError("it is not ready")


def test_a_random_model_has_a_token_for_each_id_of_a_large_vocabulary(tmp_path: Path) -> None:
    """Surrogates are no characters, and a tokenizer file takes none."""
    shape = replace(SIZES.draft, vocab=57_500)
    write_random_model(tmp_path, shape, "bfloat16")
    tokenizer = load_tokenizer(str(tmp_path))
    assert len(tokenizer) == 57_500
    assert tokenizer("Hi!", add_special_tokens=False)["input_ids"] == [39, 72, 0]
