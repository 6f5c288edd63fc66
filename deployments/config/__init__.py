"""Settings of a service, and what each part of it reads of them."""

from deployments.config.service import ServiceConfig

__all__ = ["ServiceConfig"]
