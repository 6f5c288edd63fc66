"""Former name of deployments.autoscaling.policy, for manifests of the last release."""

from deployments.autoscaling.policy import PoolPolicy

__all__ = ["PoolPolicy"]
