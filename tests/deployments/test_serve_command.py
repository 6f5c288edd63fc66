"""What `specdec serve` says before and after it starts anything."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.ports import free_port
from deployments.app import coordinator_specs
from deployments.cli import serve as serve_command
from deployments.cli import wait_ready as start_waiting
from deployments.cli.progress import waiting_line
from deployments.cli.serve import (
    formats_of,
    prepare_environment,
    ready_line,
    warn_when_fast,
    warn_when_open,
)
from deployments.cli.wait_ready import StartError, refusal_in, wait_until_ready
from deployments.config.service import ServiceConfig
from deployments.coordinator import actor as coordinator
from deployments.coordinator.spec import CoordinatorSpec
from specdec_core.config import Numerics
from specdec_core.errors import InvalidRequestError, ModelNotSupportedError, SpecdecError
from tests.deployments.checked import check_start
from tests.service.tiny_folder import quantise, save_tiny_llama, save_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("tiny"))


def config(folder: Path, **settings: Any) -> ServiceConfig:
    ports = {"port": free_port(), "grpc_port": free_port()}
    return ServiceConfig.of(model=str(folder), **{**ports, **settings})


def test_what_the_environment_says_of_serve_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "3"})
    prepare_environment()
    assert os.environ["RAY_SERVE_CONTROL_LOOP_INTERVAL_S"] == "3"
    assert os.environ["RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD"] == "0"


@pytest.mark.parametrize(("said", "used"), [({}, "malloc"), ({"PYTHONMALLOC": "p"}, "p")])
def test_processes_allocate_by_glibc_unless_the_environment_says_otherwise(
    said: dict[str, str], used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", said)
    prepare_environment()
    assert os.environ["PYTHONMALLOC"] == used


def test_a_ray_of_our_own_has_minutes_to_come_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the waits ends the start, or begins it anew."""
    monkeypatch.setattr(os, "environ", {})
    prepare_environment()
    seconds = {
        "RAY_gcs_server_port_wait_time_s": 1,
        "RAY_raylet_start_wait_time_s": 1,
        "RAY_worker_register_timeout_seconds": 1,
        "RAY_agent_register_timeout_ms": 0.001,
    }
    assert min(factor * int(os.environ[name]) for name, factor in seconds.items()) >= 120
    assert float(os.environ["RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S"]) >= 30


def test_who_joins_a_ray_does_not_wait_longer_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"RAY_ADDRESS": "127.0.0.1:1"})
    prepare_environment()
    assert "RAY_gcs_server_port_wait_time_s" not in os.environ


@pytest.mark.parametrize(
    ("said", "niceness"),
    [({}, "0"), ({"RAY_worker_niceness": "5"}, "5"), ({"RAY_ADDRESS": "auto"}, None)],
)
def test_workers_of_a_ray_of_our_own_stand_behind_nobody(
    said: dict[str, str], niceness: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", dict(said))
    prepare_environment()
    assert dict(os.environ).get("RAY_worker_niceness") == niceness


def test_ray_starts_while_models_are_checked_and_ends_where_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is found at once is told before; the check of models takes 2 s of a start."""
    seen: list[str] = []

    @contextmanager
    def ray(config: ServiceConfig, joins: bool) -> Iterator[None]:
        seen.append("begins")
        try:
            yield
        finally:
            seen.append("ends")

    monkeypatch.setattr(serve_command, "_ray", ray)
    model = save_tiny_llama(tmp_path / "quantised")
    quantise(model)
    with pytest.raises(ModelNotSupportedError, match="quantised weights"):
        serve(config(model))
    assert seen == ["begins", "ends"]
    with pytest.raises(SpecdecError, match="no model folder"):
        serve(config(tmp_path / "nowhere"))
    assert seen == ["begins", "ends"]


def serve(settings: ServiceConfig) -> None:
    with serve_command.running_service(settings, threading.Event()):
        pytest.fail("it serves")


def test_a_start_that_takes_too_long_says_what_it_was_at(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(start_waiting, "_raise_if_failed", lambda: None)
    monkeypatch.setattr(start_waiting, "waited_for", lambda: "target: reading weights")
    settings = config(folder, ready_timeout_s=0.01)
    with pytest.raises(StartError, match=r"ready_timeout_s=0\.01 \(target: reading weights\)"):
        wait_until_ready(settings, threading.Event(), told.append)
    assert told[0] == "target: reading weights"
    assert "ready_timeout_s" not in settings.deployable()


def test_without_a_terminal_each_thing_that_is_waited_for_is_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with waiting_line() as tell:
        for text in ("starting Ray", "starting Ray", "target: loaded"):
            tell(text)
    assert [line.split("  ")[-1] for line in capsys.readouterr().err.splitlines()] == [
        "starting Ray",
        "target: loaded",
    ]


def test_rays_own_authentication_is_left_alone_and_grpc_is_quiet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "environ", {})
    prepare_environment()
    assert not [name for name in os.environ if "AUTH" in name]
    assert os.environ["GRPC_VERBOSITY"] == "ERROR"


def test_a_good_configuration_passes(folder: Path) -> None:
    check_start(config(folder, spec_model=str(folder)))


def test_a_missing_model_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotSupportedError, match="there is no model folder"):
        check_start(config(tmp_path / "nowhere"))


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotSupportedError, match=r"no config\.json"):
        check_start(config(tmp_path))


def test_a_folder_without_weights_is_named(tmp_path: Path) -> None:
    save_tiny_llama(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ModelNotSupportedError, match="safetensors"):
        check_start(config(tmp_path))


def test_a_draft_with_another_tokenizer_is_refused(folder: Path, tmp_path: Path) -> None:
    save_tiny_llama(tmp_path)
    save_tokenizer(tmp_path, corpus="another corpus makes other merges, " * 20)
    with pytest.raises(ModelNotSupportedError, match="must share a tokenizer"):
        check_start(config(folder, spec_model=str(tmp_path)))


def test_a_chat_template_that_is_no_file_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"nowhere\.jinja is not a file"):
        check_start(config(folder, chat_template=tmp_path / "nowhere.jinja"))


def test_a_length_beyond_the_model_is_refused(folder: Path) -> None:
    with pytest.raises(ModelNotSupportedError, match=r"2\.\.1024, got 4096"):
        check_start(config(folder, max_model_len=4096))


def test_a_port_in_use_is_named(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InvalidRequestError, match=f"port={port} on 127.0.0.1"):
            check_start(config(folder, port=port))


def test_an_open_server_without_a_key_is_warned_of(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    warn_when_open(config(folder))
    warn_when_open(config(folder, host="0.0.0.0", api_key="secret"))
    assert capsys.readouterr().err == ""
    warn_when_open(config(folder, host="0.0.0.0"))
    assert "no API key is set" in capsys.readouterr().err


TRACEBACK = """Traceback (most recent call last):
  File "specdec_core/loading/loader.py", line 165, in apply_numerics
    make_exact(model)
specdec_core.batch_invariance.size_classes.NotExactError: exact numerics are not possible here: 3 of
60 logit rows change with the rest of their batch; first operation that differs: lm_head"""


def test_of_a_refused_start_only_the_reason_is_shown() -> None:
    reason = refusal_in(TRACEBACK)
    assert reason is not None
    assert reason.startswith("exact numerics are not possible here")
    assert reason.endswith("differs: lm_head")


@pytest.mark.parametrize(
    "text", ["", "RuntimeError: CUDA out of memory", "Deploying specdec_core: 1"]
)
def test_an_accident_is_left_to_serves_retries(text: str) -> None:
    assert refusal_in(text) is None


@pytest.mark.parametrize(
    ("asked", "kept", "is_warned"),
    [
        (Numerics.AUTO, Numerics.FAST, True),
        (Numerics.AUTO, Numerics.EXACT, False),
        (Numerics.FAST, Numerics.FAST, False),
    ],
)
def test_who_left_numerics_to_us_is_told_when_they_are_fast(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    asked: Numerics,
    kept: Numerics,
    is_warned: bool,
) -> None:
    warn_when_fast(config(folder, numerics=asked), kept)
    assert ("numerics are fast" in capsys.readouterr().err) is is_warned


def test_the_ready_line_names_both_addresses_and_a_request(folder: Path) -> None:
    settings = config(folder, host="0.0.0.0", served_model_name="tiny")
    line = ready_line(settings, Numerics.EXACT, formats_of(settings))
    assert "reasoning: none" in line
    assert "numerics exact" in line
    assert "\n" not in line
    assert f"http://127.0.0.1:{settings.port}" in line
    assert f"127.0.0.1:{settings.grpc_port}" in line
    assert "curl -s" in line
    assert '"model": "tiny"' in line


def test_the_ready_line_says_how_answers_are_read(folder: Path) -> None:
    settings = config(folder, tool_call_parser="hermes", reasoning_parser="qwen3")
    line = ready_line(settings, Numerics.EXACT, formats_of(settings))
    assert "tool calls: hermes, reasoning: qwen3 (by flag)" in line


_ENDED_FROM_A_THREAD = """
import signal, threading, time
from deployments.cli.serve import _signals_set, _wait_for

def interrupt():
    time.sleep(0.5)
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

stop = threading.Event()
with _signals_set(stop):
    threading.Thread(target=interrupt).start()
    _wait_for(stop)
"""


def test_ctrl_c_ends_the_service_whichever_thread_it_reaches() -> None:
    """The kernel chooses the thread; a wait without an end hears of its own thread's alone."""
    subprocess.run([sys.executable, "-c", _ENDED_FROM_A_THREAD], check=True, timeout=30)


def test_the_coordinators_of_the_start_are_ended_though_the_key_file_has_gone(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their names hold the version of the settings, which the keys are part of."""
    keys = tmp_path / "keys"
    keys.write_text("someone a-key\n")
    asked: list[CoordinatorSpec] = []
    specs = coordinator_specs(config(folder, api_key_file=str(keys)))
    monkeypatch.setattr(coordinator, "num_live", lambda spec: 0)
    monkeypatch.setattr(coordinator, "end", asked.append)
    monkeypatch.setattr("ray.serve.delete", lambda name: None)
    keys.unlink()
    serve_command._drain(specs, 1.0)
    serve_command._remove(specs)
    assert tuple(asked) == specs
