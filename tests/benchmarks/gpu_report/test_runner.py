"""A step that hangs or dies takes no other one with it, and a start again loses one at most."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.gpu_report import command
from benchmarks.gpu_report.environment import ROOT, environment, source_digest
from benchmarks.gpu_report.results import Result, Status, load, path_of
from benchmarks.gpu_report.runner import Runner
from benchmarks.gpu_report.settings import Settings
from benchmarks.gpu_report.steps import STEPS, TOTAL_S, Step

ACTED = "tests.benchmarks.gpu_report.acted_steps"
PATIENCE_S = 120.0


def step(name: str, limit_s: float = PATIENCE_S, asks: tuple[str, ...] = ()) -> Step:
    return Step(name=name, what=f"it {name}", limit_s=limit_s, module=ACTED, asks=asks)


def run(folder: Path, *names: str, **limits: float) -> list[str]:
    """Lines that were said. The processes are those of a GPU: spawned."""
    said: list[str] = []
    settings = Settings(device="cuda", output=folder)
    steps = [step(name, limits.get(name, PATIENCE_S)) for name in names]
    Runner(settings=settings, budget_s=10 * PATIENCE_S, say=said.append).run(steps)
    return said


def known(folder: Path, name: str) -> Result:
    found = load(path_of(folder, name))
    assert found is not None
    return found


def ran(folder: Path) -> list[str]:
    return (folder / "ran").read_text().split()


def is_alive(pid: int) -> bool:
    """A zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until_dead(*pids: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while any(map(is_alive, pids)):
        assert time.monotonic() < deadline, f"one of {pids} lives on"
        time.sleep(0.05)


def test_a_step_that_dies_fails_alone_and_its_log_is_told(tmp_path: Path) -> None:
    run(tmp_path, "dies", "raises", "skips", "works")
    found = {name: known(tmp_path, name) for name in ("dies", "raises", "skips", "works")}
    assert {name: result.status for name, result in found.items()} == {
        "dies": Status.FAILED,
        "raises": Status.FAILED,
        "skips": Status.SKIPPED,
        "works": Status.DONE,
    }
    assert "ended with -11" in found["dies"].reason
    assert found["raises"].reason == "ValueError: CUDA error: an illegal memory access"
    assert found["skips"].reason == "pytest is not installed"
    assert found["dies"].rows("rows") == [{"number": 1}], "what it had found until then"
    assert "is about to act" in (tmp_path / "dies.log").read_text()


@pytest.mark.slow
@pytest.mark.nightly
def test_a_step_is_stopped_at_its_limit_with_all_it_started(tmp_path: Path) -> None:
    said = run(tmp_path, "hangs", "works", hangs=10.0)
    hung = known(tmp_path, "hangs")
    assert hung.status is Status.OUT_OF_TIME
    assert hung.rows("rows") == [{"number": 1}]
    assert "out of time in" in said[0]
    wait_until_dead(hung.facts["pid"], hung.facts["child"])
    assert known(tmp_path, "works").status is Status.DONE


def test_a_killed_runner_takes_its_step_along_and_loses_only_that(tmp_path: Path) -> None:
    names = ("first", "hangs", "last")
    code = (
        "import sys; from pathlib import Path; from tests.benchmarks.gpu_report.test_runner"
        f" import run\nif __name__ == '__main__': run(Path(sys.argv[1]), *{names!r})"
    )
    script = tmp_path / "runs.py"
    script.write_text(code)
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    runner = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)], env={**os.environ, "PYTHONPATH": paths}
    )
    deadline = time.monotonic() + PATIENCE_S
    while (hung := load(path_of(tmp_path, "hangs"))) is None or "child" not in hung.facts:
        assert runner.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    wait_until_dead(hung.facts["pid"], hung.facts["child"])

    (tmp_path / "healed").touch()
    said = run(tmp_path, *names)
    assert ran(tmp_path) == ["first", "hangs", "hangs", "last"]
    assert "done before, kept" in said[0]
    assert "it was interrupted: run again" in said[1]
    assert known(tmp_path, "hangs").rows("rows") == [{"number": 1}, {"number": 2}]


@pytest.mark.parametrize("name", ["commit", "gpu", "torch", "source"])
def test_a_result_of_another_commit_or_gpu_is_run_again_and_not_shown(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(device="cuda", output=tmp_path)
    old = Result(
        step="peer",
        limit_s=1.0,
        environment={**environment(), name: "another"},
        asked={"model": None, "peer": None},
        status=Status.DONE,
    )
    old.save(path_of(tmp_path, "peer"))
    assert command.known_results(settings) == {}
    assert f"peer: left out of the page, its {name} was another" in capsys.readouterr().out

    old.environment = environment()
    old.save(path_of(tmp_path, "peer"))
    assert list(command.known_results(settings)) == ["peer"]
    other = Settings(device="cuda", output=tmp_path, peer="http://elsewhere")
    assert command.known_results(other) == {}


def test_a_step_runs_again_for_another_commit_or_when_asked(tmp_path: Path) -> None:
    settings = Settings(device="cuda", output=tmp_path)
    run(tmp_path, "works")
    path = path_of(tmp_path, "works")
    content = json.loads(path.read_text())
    content["environment"]["commit"] = "another"
    path.write_text(json.dumps(content))
    (line,) = run(tmp_path, "works")
    assert "its commit was another, not" in line
    assert "run again" in line
    assert known(tmp_path, "works").environment == environment()

    said: list[str] = []
    again = Runner(settings=settings, again={"works"}, budget_s=10 * PATIENCE_S, say=said.append)
    again.run([step("works")])
    assert "asked for: run again" in said[0]
    assert ran(tmp_path) == ["works"] * 3


def test_no_step_is_started_that_might_outlast_the_budget(tmp_path: Path) -> None:
    said: list[str] = []
    runner = Runner(
        settings=Settings(device="cuda", output=tmp_path), budget_s=50.0, say=said.append
    )
    runner.run([step("long", 51.0)])
    assert "left for the next run" in said[0]
    assert load(path_of(tmp_path, "long")) is None


def test_all_steps_together_end_within_26_minutes() -> None:
    assert TOTAL_S <= 26 * 60
    assert len({one.name for one in STEPS}) == len(STEPS)


def test_the_digest_of_the_sources_sees_every_change(tmp_path: Path) -> None:
    file = tmp_path / "specdec_core" / "a.py"
    file.parent.mkdir()
    file.write_text("x = 1\n")
    before = source_digest(tmp_path)
    file.write_text("x = 2\n")
    assert source_digest(tmp_path) != before


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--rehearse", "--only", "speeed"], "there is no step speeed"),
        (["--rehearse", "--draft", "x"], "--draft needs --model"),
        (["--peer", "http://x"], "no GPU is here"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(
    arguments: list[str],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(command, "has_gpu", lambda: False)
    with pytest.raises(SystemExit):
        command.main(arguments)
    assert reason in capsys.readouterr().err
