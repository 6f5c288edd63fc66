"""Named numbers in a file that several processes map: one writes, the others read while it runs."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from specdec_core.messages import Role

_BYTES = 8
VOCAB_SIZE = 512
"""IDs of the models: see model_folder.py."""


class SharedNumbers:
    """Doubles by name. A process that opens a file that exists sees and changes its numbers."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        """Make the file with zeros if it is missing. `names` must be the same for every process."""
        with path.open("a+b") as file:
            file.truncate(_BYTES * len(names))
            self._map = mmap.mmap(file.fileno(), _BYTES * len(names))
        self._numbers = memoryview(self._map).cast("d")
        self._places = {name: place for place, name in enumerate(names)}

    def __getitem__(self, name: str) -> float:
        return self._numbers[self._places[name]]

    def __setitem__(self, name: str, value: float) -> None:
        self._numbers[self._places[name]] = value

    def all(self) -> dict[str, float]:
        """Return every number by its name."""
        return {name: self._numbers[place] for name, place in self._places.items()}


class Control(NamedTuple):
    """Settings that the benchmark changes while the service runs."""

    acceptance: float = 0.0
    """Probability that a proposed token is right, in [0, 1]."""
    device: float = 0.0
    """Place of the device in DeviceKind of benchmarks/host_time/cells.py."""
    factor: float = 1.0
    """Factor by which the modelled host is slower, above 0. Passes take 1 / factor."""


EXECUTIONS = (
    "leases",
    "before_s",  # in the thread of the leases, before the first pass, or without one
    "device_s",  # the device's passes
    "between_s",  # between two passes of one lease
    "after_s",  # after the last pass
    "waited_s",  # the thread's waiting for a core within leases
    "gap_waited_s",  # waiting of the process's threads between two leases
)
"""Sums over the leases of a replica."""
LEASES = (
    "rounds",  # leases of the target
    "drafts",  # leases of the draft
    "schedule_s",  # scheduling for which a replica waits
    "wire_s",  # leases of the target on the wire
    "held_s",  # leases of the target in its process
    "draft_s",  # leases of the draft, wire included
    "shared_s",  # time in which both draft and target have a lease
    "waited_s",  # the loop's waiting for a core between an answer and the next lease
)
"""Sums over the leases of the coordinator, as the service itself times them."""
CONTROL, COORDINATOR = "control", "coordinator"
_NAMES = {
    CONTROL: Control._fields,
    COORDINATOR: LEASES,
    Role.TARGET.value: EXECUTIONS,
    Role.DRAFT.value: EXECUTIONS,
}


def shared_numbers(folder: Path, name: str) -> SharedNumbers:
    """Open the numbers of the control, of the coordinator or of the replicas of a role."""
    return SharedNumbers(folder / f"{name}.numbers", _NAMES[name])


def set_control(numbers: SharedNumbers, control: Control) -> None:
    """Tell the service's processes."""
    for name, value in control._asdict().items():
        numbers[name] = value
