"""Which release this is."""

from __future__ import annotations

from functools import cache
from importlib import metadata

DISTRIBUTION = "specdec-serve"


@cache
def package_version() -> str:
    """As it was when this process first asked: health says it many times a second, and whoever
    installs another release meanwhile takes its files away for a moment."""
    return metadata.version(DISTRIBUTION)
