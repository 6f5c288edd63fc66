"""The faults of a world, and their times.

Each strike returns the name of what it struck, or None if there is nothing to strike at present.
Its effect is over within a few seconds.
"""

from deployments.simulation.faults.plan import FaultKind, plan_faults

__all__ = ["FaultKind", "plan_faults"]
