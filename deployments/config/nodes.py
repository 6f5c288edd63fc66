"""Declares on which nodes processes run: Ray labels that a node must have."""

from __future__ import annotations

from dataclasses import dataclass

from deployments.config.flags import setting

NodeLabels = dict[str, str]
"""Ray's label selector: `{"key": "value"}`, values also as `!value` and `in(one, other)`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """Label selectors. Empty: any node with room."""

    target_node_labels: tuple[NodeLabels, ...] = setting(())
    """One selector for all cells, or one for each cell.

    Targets of one cell should be alike, because in exact numerics a cell accepts targets of one
    fingerprint only.
    """
    draft_node_labels: NodeLabels = setting({})
    ingress_node_labels: NodeLabels = setting({})
    coordinator_node_labels: NodeLabels = setting({})
    """Coordinators need no logical CPU, so Ray may put them on any node, even one that may go.

    Coordinators of different cells run on different nodes, if there are enough.
    """
    max_ingress_replicas_per_node: int | None = setting(None, ge=1, le=100)
    """Maximum ingress replicas on one node. Default: no limit.

    Set it to 1 if clients reach each node separately. Otherwise Serve packs all replicas onto one
    node, and the other nodes are never ready.
    """

    def check_cells(self, num_cells: int) -> None:
        """Raise ValueError unless the selectors of targets fit the number of cells."""
        num_given = len(self.target_node_labels)
        if num_given not in (0, 1, num_cells):
            raise ValueError(
                f"target_node_labels has {num_given} entries for {num_cells} cells: "
                "give one for all of them, or one for each"
            )

    def target_labels(self, cell: int) -> NodeLabels:
        """Return the labels of the nodes of a cell's targets."""
        given = self.target_node_labels
        return given[cell if len(given) > 1 else 0] if given else {}
