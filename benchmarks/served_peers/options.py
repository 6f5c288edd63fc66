"""The flags of `run` as one record, checked before anything is started."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.served_peers.arms import Arm, arms_of, goes
from benchmarks.served_peers.engines import NAMES, SPECDEC, Site
from benchmarks.served_peers.prompts import COPYING_KINDS, LONG, SHORT
from benchmarks.served_peers.readings import Load
from specdec_core.errors import InvalidRequestError

_LEAST_REQUESTS = 4
"""Of a cell: one stream asks so many, one after the other."""
_PAIR_WAVES = 4
"""So often a stream asks in each of the four goes of a paired turn. Two goes of a side take 5 s and
more: of 1.5 s single pairs differed by 10 %, of 4 s by 6; and of two sides of 26 s each, one after
the other, by 4 % still, as a machine has slow minutes."""

_PORTS = 2
"""Ports of a specdec server: HTTP and gRPC."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    engines: tuple[str, ...]
    rounds: int
    streams: tuple[int, ...]
    long_streams: tuple[int, ...]
    """With long prompts: a slow engine reads 992 tokens for each."""
    prompts: tuple[str, ...]
    pairs: int
    """Paired turns of speculation on and off, for every number of streams and temperature."""
    pair_temperatures: tuple[float, ...]
    pair_prompts: tuple[str, ...]
    """Kinds of prompts of paired turns."""
    spec_tokens: tuple[int, ...]
    """Maximum K of further arms of paired turns, each with its own server."""
    off_pairs: bool
    """Whether paired turns have a second arm without speculation, which shows the noise."""
    first_requests: int
    first_streams: int
    max_tokens: int
    site: Site
    ready_timeout_s: float
    timeout_s: float

    def __post_init__(self) -> None:
        _check_known("engine", self.engines, NAMES)
        _check_known("kind of prompts", self.prompts, (SHORT, LONG))
        _check_known("kind of prompts for pairs", self.pair_prompts, (SHORT, LONG, *COPYING_KINDS))
        if (
            min(self.rounds, self.max_tokens, self.first_streams, *self.streams, *self.long_streams)
            < 1
        ):
            raise InvalidRequestError("rounds, tokens and streams are at least 1")
        if min(self.pairs, self.first_requests) < 0:
            raise InvalidRequestError("pairs and first requests are at least 0")

    def cells(self, number: int) -> list[Load]:
        """Of a round: each time other prompts, the same for every engine."""
        by_kind = {SHORT: self.streams, LONG: self.long_streams}
        return [
            self._load(kind, streams, 0.0, number)
            for kind in self.prompts
            for streams in by_kind[kind]
        ]

    def pair_numbers(self, number: int) -> range:
        """The paired turns of a round: those of all rounds together are --pairs."""
        bounds = [self.pairs * place // self.rounds for place in (number, number + 1)]
        return range(*bounds)

    def pair_goes(self, number: int) -> tuple[Arm, ...]:
        """Return the arm of each go of a paired turn."""
        return goes(arms_of(self.spec_tokens, has_noise=self.off_pairs), number)

    def beside(self, place: int) -> RunOptions:
        """Return the options of another specdec server that runs at the same time."""
        port = self.site.port + _PORTS * (place + 1)
        return replace(self, site=replace(self.site, port=port))

    def pair_loads(self, number: int) -> list[Load]:
        return [
            self._load(kind, streams, temperature, number, _PAIR_WAVES * streams)
            for kind in self.pair_prompts
            for temperature in self.pair_temperatures
            for streams in self.streams
        ]

    def first_load(self, number: int) -> Load:
        first = number * self.first_requests
        return Load(SHORT, self.first_streams, 0.0, self.first_requests, first)

    def _load(
        self, kind: str, streams: int, temperature: float, number: int, num_requests: int = 0
    ) -> Load:
        num_requests = num_requests or max(streams, _LEAST_REQUESTS)
        return Load(kind, streams, temperature, num_requests, number * num_requests)

    @property
    def num_loads(self) -> int:
        """Of a run in which nothing fails."""
        cells = len(self.cells(0)) * len(self.engines) * self.rounds
        if SPECDEC not in self.engines:
            return cells
        pairs = self.pairs * len(self.pair_goes(0)) * len(self.pair_loads(0))
        return cells + pairs + 2 * self.rounds * bool(self.first_requests)


def _check_known(what: str, names: tuple[str, ...], known: tuple[str, ...]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        told = repr(unknown[0]) if unknown else "at all"
        raise InvalidRequestError(f"no {what} {told}; known are: {', '.join(known)}")
