"""The name, settings and nodes of a coordinator, as known to every process of its cell."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from deployments.config.client_limits import ClientLimits
from deployments.coordinator.server import PortLimits
from deployments.names import LogFormat
from deployments.wire.tls_files import TlsFiles
from specdec_core.config import SchedulerConfig

NAMESPACE = "specdec"
"""Ray namespace of all coordinators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSpec:
    """Which coordinator a process belongs to, and how to make it."""

    application: str
    version: str
    """Version of the configuration. A redeploy with another version gets another coordinator."""
    pool: SchedulerConfig
    audit_share: float = 0.0
    limits: ClientLimits = field(default_factory=ClientLimits)
    port_limits: PortLimits = field(default_factory=PortLimits)
    tls: TlsFiles | None = None
    host: str | None = None
    """Address to listen on. None means the node's address."""
    cell: int = 0
    num_cells: int = 1
    log_format: LogFormat = LogFormat.TEXT
    model_name: str = ""
    """Model name that clients use, and label of the metrics."""
    node_labels: dict[str, str] = field(default_factory=dict)
    """Ray labels of the nodes that the coordinator may run on. Empty means any node. If possible,
    each cell's coordinator runs on a different one of them (coordinator/node_placement.py)."""
    idle_exit_s: float = 60.0
    """Seconds without a stream after which the application counts as gone and the coordinator ends.
    A process that comes later creates a new one."""

    @property
    def cell_name(self) -> str:
        """Common prefix of the actor names of the cell's coordinators of all versions."""
        return f"{self.application}:cell-{self.cell}:"

    @property
    def actor_name(self) -> str:
        return self.cell_name + self.version

    @property
    def others(self) -> tuple[CoordinatorSpec, ...]:
        """Specs of the other cells' coordinators."""
        cells = (cell for cell in range(self.num_cells) if cell != self.cell)
        return tuple(replace(self, cell=cell) for cell in cells)
