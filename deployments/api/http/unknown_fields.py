"""Unknown names in a request body. Each gets a warning, or the request is refused."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import islice

from deployments.config.service import UnknownFieldsMode
from specdec_core.errors import InvalidRequestError

logger = logging.getLogger(__name__)

_MAX_REMEMBERED = 1000
"""Names for which the log has its warning already; further names are not logged."""
_MAX_WARNINGS = 16
"""Warnings in one response."""


class UnknownFields:
    """The mode of this process, and the names that it has logged."""

    def __init__(self, mode: UnknownFieldsMode = UnknownFieldsMode.WARN) -> None:
        self._refuses = mode is UnknownFieldsMode.REFUSE
        self._logged: set[str] = set()

    def warnings(self, names: Iterable[str]) -> list[str]:
        """Return the response's warnings. Raise InvalidRequestError if this server refuses such
        names."""
        return [self._warning(name) for name in islice(names, _MAX_WARNINGS)]

    def _warning(self, name: str) -> str:
        shown = name if len(name) <= 80 else f"{name[:80]}..."
        if self._refuses:
            raise InvalidRequestError(
                f"unknown field {shown}", param=shown, code="unknown_parameter"
            )
        if shown not in self._logged and len(self._logged) < _MAX_REMEMBERED:
            self._logged.add(shown)
            logger.warning("unknown field %r in a request: it is ignored", shown)
        return f"unknown field {shown} is ignored"
