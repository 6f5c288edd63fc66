"""Which release this is."""

from __future__ import annotations

from importlib import metadata

DISTRIBUTION = "specdec-serve"


def package_version() -> str:
    return metadata.version(DISTRIBUTION)
