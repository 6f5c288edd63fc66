"""What must hold at every event, read from the pool's insides and from books of its own.

The letters are those of docs/simulation.md.
"""

from deployments.simulation.invariants.bounds import Bounds
from deployments.simulation.invariants.slot_checks import SlotChecks
from deployments.simulation.invariants.watch import Invariants

__all__ = ["Bounds", "Invariants", "SlotChecks"]
