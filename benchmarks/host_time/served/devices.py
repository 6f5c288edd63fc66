"""A device that another process switches while it runs."""

from __future__ import annotations

from typing import Any

from benchmarks.host_time.cells import DeviceKind, DeviceTimes, times_of
from benchmarks.host_time.device import ModelledDevice
from benchmarks.host_time.served.shared_numbers import SharedNumbers
from specdec_core.messages import Role

KINDS = tuple(DeviceKind)


class SwitchedDevice(ModelledDevice):
    """Takes the times of the device that the benchmark names at the moment."""

    def __init__(self, role: Role, control: SharedNumbers, **options: Any) -> None:
        """`options` are those of ModelledDevice."""
        super().__init__(**options)
        self._is_target = role is Role.TARGET
        self._control = control
        self._kinds: list[DeviceTimes] = [times_of(kind) for kind in KINDS]
        self._known: dict[tuple[int, int, float], float] = {}

    def launch(self, seconds: float, rows: int = 0, tokens: float = 0.0) -> None:
        """Launch a pass. `seconds` do not count: recordings outlive a change."""
        place = int(self._control["device"])
        self._is_async = self._kinds[place].is_async
        key = (place, rows, tokens)
        if key not in self._known:
            self._known[key] = self._seconds(*key)
        super().launch(self._known[key] / self._control["factor"], rows, tokens)

    def _seconds(self, place: int, rows: int, tokens: float) -> float:
        times = self._kinds[place]
        return (times.target if self._is_target else times.draft_step)(rows, tokens)
