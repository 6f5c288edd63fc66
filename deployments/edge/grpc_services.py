"""Former name of deployments.proxy.grpc_services, for manifests of the last release."""

from deployments.proxy.grpc_services import add_services

__all__ = ["add_services"]
