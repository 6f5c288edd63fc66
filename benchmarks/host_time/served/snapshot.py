"""Read the counters of a service at one moment: its own, the benchmark's, and those of Linux."""

from __future__ import annotations

import os
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.processes import Kind, below, kind_or_name
from benchmarks.host_time.served.shared_numbers import COORDINATOR, shared_numbers
from benchmarks.host_time.served.waiting import CpuUse, use_of_process
from deployments.cli.bench.speculation import SpecCounts, counts_of_page
from specdec_core.errors import SpecdecError
from specdec_core.messages import Role

CLIENT = "load generator"
RAY = "Ray's own"
_TIMEOUT_S = 10.0
_LOOK_S = 1e-4
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Totals since the start of the service."""

    at_s: float
    """Time of the target's last answer on this process's clock, within _LOOK_S."""
    speculation: SpecCounts
    executions: Mapping[Role, Mapping[str, float]]
    """EXECUTIONS of the replicas, by their role."""
    leases: Mapping[str, float]
    """LEASES of the coordinator."""
    use: Mapping[str, CpuUse]
    """Use of the processor by process."""


class Watched:
    """A running service."""

    def __init__(self, url: str, folder: Path, pid: int) -> None:
        """`folder` has its shared numbers; `pid` is that of `specdec serve`."""
        self._url = url
        self._names = {process.pid: _called(kind_or_name(process)) for process in below(pid)}
        self._names |= {os.getpid(): CLIENT, pid: RAY}
        self._executions = {role: shared_numbers(folder, role.value) for role in Role}
        self._leases = shared_numbers(folder, COORDINATOR)

    def snapshot(self) -> Snapshot:
        """Read everything once the target answers. Raises SpecdecError if it does not."""
        speculation = counts_of_page(self._page()) or SpecCounts()
        return Snapshot(
            at_s=self._next_answer_s(),
            leases=self._leases.all(),
            executions={role: numbers.all() for role, numbers in self._executions.items()},
            speculation=speculation,
            use=self.use(),
        )

    def use(self) -> Mapping[str, CpuUse]:
        """Return the use of the processor by process, since each began."""
        return by_name((name, use_of_process(pid)) for pid, name in self._names.items())

    def _next_answer_s(self) -> float:
        seen, begun_s = self._leases["rounds"], time.perf_counter()
        while self._leases["rounds"] == seen:
            if time.perf_counter() - begun_s > _TIMEOUT_S:
                raise SpecdecError(f"the target has not answered for {_TIMEOUT_S:g} s")
            time.sleep(_LOOK_S)
        return time.perf_counter()

    def _page(self) -> str:
        with _OPENER.open(f"{self._url}/metrics", timeout=_TIMEOUT_S) as answer:
            return str(answer.read().decode())


def by_name(uses: Iterable[tuple[str, CpuUse]]) -> dict[str, CpuUse]:
    """Sum up the processes of one name."""
    found: defaultdict[str, CpuUse] = defaultdict(CpuUse)
    for name, use in uses:
        found[name] = found[name].plus(use)
    return dict(found)


_SHOWN: Sequence[str] = (*Kind, "haproxy")


def _called(name: str) -> str:
    return name if name in _SHOWN else RAY
