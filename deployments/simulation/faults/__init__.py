"""What goes wrong in a world, and when.

Each strike returns whom it struck, or None where there is nothing that it could strike at present;
what it does is over again within a few seconds.
"""

from deployments.simulation.faults.plan import FaultKind, plan_faults

__all__ = ["FaultKind", "plan_faults"]
