"""Manifests of the service, and the code that writes some of them."""
