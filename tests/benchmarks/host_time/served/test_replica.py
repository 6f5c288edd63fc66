"""What a replica tells of its leases, and which device it models."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.host_time.cells import DeviceKind, times_of
from benchmarks.host_time.device import Pass
from benchmarks.host_time.served.devices import KINDS, SwitchedDevice
from benchmarks.host_time.served.replica import note_execution
from benchmarks.host_time.served.shared_numbers import (
    CONTROL,
    Control,
    SharedNumbers,
    set_control,
    shared_numbers,
)
from specdec_core.messages import Role


def _launched(device: SwitchedDevice, rows: int, tokens: int) -> float:
    """Return the seconds of a pass."""
    device.passes.clear()
    device.launch(99.0, rows, tokens)
    (one,) = device.passes
    return one.ended - one.started


@pytest.fixture
def control(tmp_path: Path) -> SharedNumbers:
    return shared_numbers(tmp_path, CONTROL)


def _device(role: Role, control: SharedNumbers) -> SwitchedDevice:
    return SwitchedDevice(role, control, clock=lambda: 0.0, sleep=lambda seconds: None)


def test_a_lease_is_split_at_its_passes(tmp_path: Path) -> None:
    told = shared_numbers(tmp_path, Role.DRAFT)
    passes = [Pass(10.5, 10.5, 12.5, 8, 1), Pass(10.6, 12.75, 13.75, 8, 1)]
    note_execution(told, passes, 10.0, 14.5, 0.125)
    expected = {
        "leases": 1,
        "before_s": 0.5,
        "device_s": 3.0,
        "between_s": 0.25,
        "after_s": 0.75,
        "waited_s": 0.125,
    }
    found = {name: value for name, value in told.all().items() if value}
    assert found == expected


def test_a_lease_without_a_pass_is_the_hosts_alone(tmp_path: Path) -> None:
    told = shared_numbers(tmp_path, Role.TARGET)
    note_execution(told, [], 10.0, 10.5, 0.125)
    found = {name: value for name, value in told.all().items() if value}
    assert found == {"leases": 1, "before_s": 0.5, "waited_s": 0.125}


def test_a_running_device_is_switched(control: SharedNumbers) -> None:
    device = _device(Role.TARGET, control)
    for kind in (DeviceKind.H100, DeviceKind.NONE, DeviceKind.H100):
        set_control(control, Control(device=KINDS.index(kind)))
        assert _launched(device, 8, 5) == pytest.approx(times_of(kind).target(8, 5))


def test_a_draft_takes_the_times_of_its_steps(control: SharedNumbers) -> None:
    set_control(control, Control(device=KINDS.index(DeviceKind.H100)))
    step_s = times_of(DeviceKind.H100).draft_step(8, 1)
    assert _launched(_device(Role.DRAFT, control), 8, 1) == pytest.approx(step_s)


def test_beside_a_slower_host_passes_are_shorter(control: SharedNumbers) -> None:
    place = KINDS.index(DeviceKind.H100)
    set_control(control, Control(device=place, factor=2.0))
    expected = times_of(DeviceKind.H100).target(8, 1) / 2
    assert _launched(_device(Role.TARGET, control), 8, 1) == pytest.approx(expected)


def test_two_processes_see_the_same_numbers(tmp_path: Path) -> None:
    one, other = shared_numbers(tmp_path, CONTROL), shared_numbers(tmp_path, CONTROL)
    set_control(one, Control(acceptance=0.7, device=2, factor=1.5))
    assert other.all() == {"acceptance": 0.7, "device": 2.0, "factor": 1.5}
