"""README.md keeps its word: every command and snippet in it is run, and it is short."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Specdec
from tests.demo_service import DemoService

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()
API = (ROOT / "docs" / "api.md").read_text()


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def _commands(beginning: str) -> list[str]:
    lines = [line for block in _blocks("bash") for line in block.splitlines()]
    return [line for line in lines if line.startswith(beginning)]


def _run(*command: str, **environment: str) -> str:
    ended = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert {"setup", "serve", "test", "lint", "proto", "bench"} <= targets
    named = {command.split()[1] for command in _commands("make ")}
    assert named == {"serve", "setup"}


def test_it_has_at_most_150_lines() -> None:
    assert len(README.splitlines()) <= 150


def test_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    missing = [link for link in links if not (ROOT / link).exists()]
    assert missing == []


def test_serve_commands_are_understood() -> None:
    (command,) = _commands(".venv/bin/specdec serve")
    flags = shlex.split(command)[1:]
    main = "from deployments.cli.main import main; main()"
    assert "Qwen/Qwen3-0.6B" in _run(sys.executable, "-c", main, *flags, "--print-config")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("demo_model")
def test_generate_commands_run(
    specdec: Specdec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    commands = _commands(".venv/bin/specdec generate")
    assert len(commands) == 2
    for command in commands:
        words = [
            str(tmp_path / word) if word.endswith((".jsonl", ".json")) and "/" not in word else word
            for word in shlex.split(command)[1:]
        ]
        outcome = specdec(*words, "--max-tokens", 8, "--limit", 2)
        assert outcome.status == 0, outcome.err
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 2
    assert json.loads((tmp_path / "stats.json").read_text())["requests"] == 2


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_gets_the_answer_that_is_shown(demo: DemoService) -> None:
    (command,) = _commands("curl")
    answer = json.loads(_run(*shlex.split(command.replace(":8000", f":{demo.http}"))))
    (shown,) = [json.loads(block) for block in _blocks("json")]
    assert answer.keys() == shown.keys()
    assert answer["choices"] == shown["choices"]
    assert answer["usage"] == shown["usage"]
    ours, theirs = (a["metrics"]["speculative_decoding"] for a in (answer, shown))
    assert ours.keys() == theirs.keys()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_clients_print_the_answer(demo: DemoService) -> None:
    for command in _commands(".venv/bin/python examples/"):
        script = command.split()[1]
        is_grpc = "grpc" in script
        address = demo.grpc_address if is_grpc else demo.url
        assert "Paris" in _run(sys.executable, script, address), command


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_grpc_snippet_prints_the_answer(demo: DemoService) -> None:
    blocks = re.findall(r"```python\n(.*?)```", API, flags=re.DOTALL)
    (snippet,) = [block for block in blocks if "import grpc" in block]
    output = _run(sys.executable, "-c", snippet.replace(":9000", f":{demo.grpc}"))
    assert "Paris" in output


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_library_snippet_prints_tokens(
    demo_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (snippet,) = [block for block in _blocks("python") if "Engine.load" in block]
    exec(snippet.replace("path/or/hub-id", str(demo_model)), {})
    assert "(" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_offline_example_prints_the_answer(
    demo_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["offline.py", str(demo_model)])
    runpy.run_path(str(ROOT / "examples" / "offline.py"))
    assert "Paris" in capsys.readouterr().out
