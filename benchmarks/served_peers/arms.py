"""The arms of paired turns: speculation as it ships, with another maximum K, and off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.served_peers.readings import OFF, OFF_AGAIN, ON


class Arm(NamedTuple):
    """One way to serve the requests of a turn."""

    name: str
    is_speculating: bool = True
    spec_tokens: int | None = None
    """Maximum K of the server. None: the server as it ships."""


def arms_of(spec_tokens: Sequence[int], *, has_noise: bool) -> tuple[Arm, ...]:
    """Return the arms of a run. `has_noise` adds a second arm without speculation, whose ratio to
    the first one shows the noise of the machine."""
    with_k = [Arm(arm_name(k), spec_tokens=k) for k in spec_tokens]
    off = [Arm(name, is_speculating=False) for name in (OFF, OFF_AGAIN)[: 1 + has_noise]]
    return (Arm(ON), *with_k, *off)


def arm_name(spec_tokens: int) -> str:
    """Return the name of an arm whose server has this maximum K."""
    return f"{ON}, K = {spec_tokens}"


def goes(arms: Sequence[Arm], number: int) -> tuple[Arm, ...]:
    """Return the arms of turn `number` in order, each twice.

    The second half mirrors the first one, so that a machine that gets slower or faster meanwhile
    does so for all. Which arm comes first changes from turn to turn.
    """
    first = number % len(arms)
    half = (*arms[first:], *arms[:first])
    return half + half[::-1]
