"""Invariants checked at every event, from the scheduler's internals and from independent records.

The letters are those of docs/simulation.md.
"""

from deployments.simulation.invariants.bounds import Bounds
from deployments.simulation.invariants.slot_checks import SlotChecks
from deployments.simulation.invariants.watch import Invariants

__all__ = ["Bounds", "Invariants", "SlotChecks"]
