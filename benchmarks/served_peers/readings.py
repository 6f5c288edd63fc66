"""What is measured at a time, and what was read."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple


class Part(StrEnum):
    """Of a round."""

    CELLS = "cells"
    """Every engine once with every kind of prompt and number of streams."""
    PAIRS = "pairs"
    """specdec with speculation, without it and in other arms, one right behind the other."""
    FIRST = "first"
    """specdec's first requests after a start, with speculation and, after another, without it."""


ON, OFF, OFF_AGAIN = "on", "off", "off again"
"""Names of the arms of a pair. OFF_AGAIN is equal to OFF and shows the noise."""


class Load(NamedTuple):
    """What is asked of a server or the engine at a time."""

    prompts: str
    streams: int
    temperature: float
    num_requests: int
    first: int
    """Place of the first prompt."""

    @property
    def shape(self) -> dict[str, Any]:
        """Return what a reading says of its load."""
        return {
            "prompts": self.prompts,
            "streams": self.streams,
            "temperature": self.temperature,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One load on one engine."""

    engine: str
    part: Part
    round: int
    pair: int | None = None
    """Number of the paired turn, of all rounds."""
    speculation: str | None = None
    """Name of the arm, in paired turns and of first requests."""
    prompts: str
    streams: int
    temperature: float
    input_tokens: int
    """Of all prompts, as the server counts them: the same for every engine."""
    tokens: int
    """Of all answers."""
    seconds: float
    busy_tokens: float
    busy_s: float
    """Tokens and seconds as long as every stream had a request under way (client.Busy)."""
    decode_tokens: float = 0.0
    decode_s: float = 0.0
    """Tokens after the first chunk of each answer, and seconds since it, summed over answers."""
    passes: dict[str, float] = field(default_factory=dict)
    """What a server tells of its target's passes (client.passes_of); empty of the others."""
    ttft_ms: dict[str, float] = field(default_factory=dict)
    """p50 and p90; none of the engine without a service."""
    gap_ms: dict[str, float] = field(default_factory=dict)
    """p50 and p99, between chunks of a stream: one chunk may carry several tokens."""
    cpu_s: dict[str, float]
    """By process."""
    client_cpu_s: float = 0.0
    resident_mib: float
    stolen: float
    """Share of the machine that its host gave to others meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of a server."""

    engine: str
    round: int
    ready_s: float
    command: list[str]
    variables: dict[str, str]
    """Set for this server, besides those of the shell."""


class NotRun(NamedTuple):
    """Nothing is left out without a reason."""

    engine: str
    reason: str


Record = dict[str, Any]
"""A reading or a start as JSON."""
