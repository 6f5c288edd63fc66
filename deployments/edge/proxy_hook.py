"""Former name of deployments.proxy.hooks, for manifests of the last release."""

from deployments.proxy.hooks import guard

__all__ = ["guard"]
