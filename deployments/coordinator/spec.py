"""What every process of a cell knows of its coordinator: its name, its settings, its nodes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from deployments.config.client_limits import ClientLimits
from deployments.coordinator.server import PortLimits
from deployments.observability.logs import LogFormat
from deployments.wire.tls_files import TlsFiles
from specdec_core.config import PoolConfig

NAMESPACE = "specdec"
"""Ray's, of all coordinators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSpec:
    """Which coordinator a process belongs to, and how to make it."""

    application: str
    version: str
    """Of the configuration: a redeploy with another one gets another coordinator."""
    pool: PoolConfig
    audit_share: float = 0.0
    limits: ClientLimits = field(default_factory=ClientLimits)
    port_limits: PortLimits = field(default_factory=PortLimits)
    tls: TlsFiles | None = None
    host: str | None = None
    """Address to listen on; None: the node's."""
    cell: int = 0
    num_cells: int = 1
    log_format: LogFormat = LogFormat.TEXT
    model_name: str = ""
    """As clients name it; metrics are labelled with it."""
    node_labels: dict[str, str] = field(default_factory=dict)
    """Ray labels of the nodes that it may run on; empty: any. Cells' coordinators run on different
    ones of them where they can (coordinator/node_placement.py)."""
    idle_exit_s: float = 60.0
    """Without a stream for this long the application is gone; a latecomer makes a new one."""

    @property
    def cell_name(self) -> str:
        """With it begin the names of the cell's coordinators of all versions."""
        return f"{self.application}:cell-{self.cell}:"

    @property
    def actor_name(self) -> str:
        return self.cell_name + self.version

    @property
    def others(self) -> tuple[CoordinatorSpec, ...]:
        """Of the other cells."""
        cells = (cell for cell in range(self.num_cells) if cell != self.cell)
        return tuple(replace(self, cell=cell) for cell in cells)
