"""Runner processes: what they say, that they wait without a core, how they end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from benchmarks.peers.messages import Decoded, Failed, Load, Loaded, Turn, from_line, to_line
from benchmarks.peers.processes import RunnerProcess

COMMAND = [sys.executable, "-m", "tests.benchmarks.fake_runner"]


def load(target: str = "model") -> Load:
    return Load(
        target=target,
        drafts={"d": "folder"},
        spec_tokens=4,
        max_batch_size=2,
        max_model_len=64,
        dtype="float32",
        threads=1,
        unused_id=7,
    )


def turn(method: str = "plain") -> Turn:
    return Turn(
        method=method,
        batch_size=2,
        prompts=[[5, 6, 7], [8]],
        max_tokens=2,
        temperature=0.0,
    )


def start(folder: Path, timeout_s: float = 60.0) -> RunnerProcess:
    return RunnerProcess(COMMAND, variables={}, log=folder / "log", timeout_s=timeout_s)


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[RunnerProcess]:
    process = start(tmp_path)
    yield process
    process.close()


@pytest.mark.parametrize(
    "message",
    [
        load(),
        turn(),
        Loaded(seconds=1.0, facts={"torch": "2"}),
        Decoded(seconds=1.0, token_ids=[[1, 2], []], figures={"accepted": 3.0}),
        Failed(reason="two\nlines"),
    ],
)
def test_a_message_is_one_line_that_says_it_all(message: Load) -> None:
    line = to_line(message)
    assert line.count("\n") == 1
    assert from_line(line) == message


@pytest.mark.parametrize("line", ["INFO loading", "{}", '{"Turn": {"method": "plain"}}', "[1]"])
def test_what_is_no_message_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"no message|Expecting|missing"):
        from_line(line)


def test_what_an_engine_prints_goes_to_the_log_and_not_between_the_answers(
    runner: RunnerProcess, tmp_path: Path
) -> None:
    loaded = runner.ask(load())
    assert isinstance(loaded, Loaded)
    assert loaded.facts["threads"] == "1"
    answer = runner.ask(turn())
    assert answer == Decoded(
        seconds=0.5, token_ids=[[3, 3], [1, 1]], figures={"acceptance_length": 1.5}
    )
    runner.close()
    assert "a banner" in (tmp_path / "log").read_text()


def test_a_runner_takes_no_core_between_its_turns(runner: RunnerProcess) -> None:
    """One runner has a thread that never waits."""
    assert isinstance(runner.ask(load("spins")), Loaded)
    before = runner.cpu_seconds()
    time.sleep(0.5)
    assert runner.cpu_seconds() - before < 0.05
    assert isinstance(runner.ask(turn()), Decoded), "it goes on when it is asked"


def test_a_failed_turn_says_why_and_the_next_one_is_answered(runner: RunnerProcess) -> None:
    assert isinstance(runner.ask(load()), Loaded)
    assert runner.ask(turn("fails")) == Failed(reason="RuntimeError: out of blocks")
    assert isinstance(runner.ask(turn()), Decoded)


def test_a_model_that_does_not_load_is_a_failure_with_its_reason(runner: RunnerProcess) -> None:
    assert runner.ask(load("no-model")) == Failed(reason="OSError: there is no such model")


def test_a_runner_that_ends_is_a_failure_with_the_end_of_its_log(runner: RunnerProcess) -> None:
    assert isinstance(runner.ask(load()), Loaded)
    answer = runner.ask(turn("dies"))
    assert isinstance(answer, Failed)
    assert "the runner ended with status 3" in answer.reason
    assert "a banner of the engine" in answer.reason
    assert isinstance(runner.ask(turn()), Failed), "and stays one"
    assert runner.cpu_seconds() == 0.0


def test_a_runner_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    process = start(tmp_path)
    loaded = process.ask(load())
    assert isinstance(loaded, Loaded)
    process.timeout_s = 0.3
    answer = process.ask(turn("hangs"))
    assert isinstance(answer, Failed)
    assert "no answer in 0.3 s" in answer.reason
    assert not psutil.pid_exists(int(loaded.facts["pid"]))


@pytest.mark.slow
@pytest.mark.nightly
def test_a_command_that_is_told_to_end_leaves_no_stopped_runner_behind(tmp_path: Path) -> None:
    script = tmp_path / "command.py"
    script.write_text(
        "import sys, time\n"
        "from pathlib import Path\n"
        "from benchmarks.harness.commands import errors_told\n"
        "from tests.benchmarks.test_peer_processes import load, start\n"
        "with errors_told():\n"
        "    process = start(Path(sys.argv[1]))\n"
        "    try:\n"
        "        print(process.ask(load()).facts['pid'], flush=True)\n"
        "        time.sleep(60)\n"
        "    finally:\n"
        "        process.close()\n"
    )
    command = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**psutil.Process().environ(), "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert command.stdout is not None
    runner = int(command.stdout.readline())
    command.send_signal(signal.SIGTERM)
    assert command.wait(30) != 0
    assert not psutil.pid_exists(runner)
