"""The version of this release."""

from __future__ import annotations

from functools import cache
from importlib import metadata

DISTRIBUTION = "specdec-serve"


@cache
def package_version() -> str:
    """Return the version as it was when this process first asked.

    Health reports it many times a second. An installation of another release meanwhile takes the
    files away for a moment.
    """
    return metadata.version(DISTRIBUTION)
