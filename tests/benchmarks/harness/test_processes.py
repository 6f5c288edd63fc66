"""Processes are found by what Ray calls them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psutil
import pytest

from benchmarks.harness.processes import (
    Kind,
    below,
    cpu_seconds,
    kind_of,
    kind_or_name,
    name_of,
    pids_by_kind,
    title_of,
)

TARGET = "ray::ServeReplica:specdec:target.check_health"


@contextmanager
def titled(title: str) -> Iterator[int]:
    """A child that is called so, as Ray calls its actors: by what its command line begins with."""
    command = [title, "-c", "read line"]
    with subprocess.Popen(command, executable="/bin/sh", stdin=subprocess.PIPE) as process:
        while not psutil.Process(process.pid).cmdline():
            time.sleep(0.001)  # the kernel tells it a moment after the program has begun
        yield process.pid


@pytest.mark.parametrize(
    ("title", "kind"),
    [
        (TARGET, Kind.TARGET),
        ("ray::ServeReplica:specdec:target-cell-1", Kind.TARGET),
        ("ray::ServeReplica:specdec:ingress", Kind.INGRESS),
        ("ray::ProxyActor.receive_asgi_messages", Kind.PROXY),
        ("ray::Coordinator", Kind.COORDINATOR),
        ("ray::ServeController", Kind.CONTROLLER),
        ("ray::IDLE", None),
        ("/usr/bin/gcs_server --port=1", None),
    ],
)
def test_processes_are_known_by_their_titles(title: str, kind: Kind | None) -> None:
    assert kind_of(title) == kind


@pytest.mark.parametrize(
    ("title", "name", "called"),
    [
        (TARGET, "ray::ServeReplica:specdec:target", "target"),
        ("ray::IDLE", "ray::IDLE", "ray::IDLE"),
        ("VLLM::EngineCore", "VLLM::EngineCore", "VLLM::EngineCore"),
    ],
)
def test_a_name_leaves_out_what_a_process_does_just_now(title: str, name: str, called: str) -> None:
    with titled(title) as pid:
        process = psutil.Process(pid)
        assert (name_of(process), kind_or_name(process)) == (name, called)


def test_a_program_without_a_title_has_its_own_name() -> None:
    process = psutil.Process()
    assert name_of(process) == kind_or_name(process) == process.name()


def test_processes_of_a_kind_are_found_below_their_parent() -> None:
    with ExitStack() as children:
        pids = [children.enter_context(titled(title)) for title in (TARGET, "ray::IDLE", TARGET)]
        assert set(pids) <= {process.pid for process in below(os.getpid())}
        found = pids_by_kind(os.getpid())
    assert {pids[0], pids[2]} <= set(found[Kind.TARGET])
    assert found[Kind.TARGET] == tuple(sorted(found[Kind.TARGET]))
    assert not any(pids[1] in of_kind for of_kind in found.values())


def test_a_process_that_has_ended_holds_nobody_up() -> None:
    with titled(TARGET) as pid:
        process = psutil.Process(pid)
        assert cpu_seconds([process], name_of).keys() == {"ray::ServeReplica:specdec:target"}
    assert title_of(process) == ""
    assert below(pid) == []
    assert cpu_seconds([process], name_of) == {}
