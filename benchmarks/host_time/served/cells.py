"""Which cells a service is measured in by default, and what a request asks for in each."""

from __future__ import annotations

from typing import Any

from benchmarks.host_time.cells import Cell, DeviceKind, Method
from specdec_core.config import SpecMethod

DEFAULT = (
    *(Cell(DeviceKind.H100, rows, method) for rows in (1, 8, 32) for method in Method),
    *(Cell(DeviceKind.CPU, rows, Method.PLAIN) for rows in (1, 8)),
    *(Cell(DeviceKind.NONE, rows, Method.PLAIN) for rows in (1, 32)),
)
"""Rows are streams. Takes at most 2.5 minutes on two quiet cores, with the start of the service."""
_METHODS = {
    Method.NGRAM_0: SpecMethod.NGRAM,
    Method.NGRAM_07: SpecMethod.NGRAM,
    Method.DRAFT: SpecMethod.DRAFT_MODEL,
}


def asked(method: Method) -> dict[str, Any]:
    """Return the fields of a request that choose how it is decoded."""
    if method is Method.PLAIN:
        return {"speculative": {"enabled": False}}
    return {"speculative": {"method": _METHODS[method].value}}
