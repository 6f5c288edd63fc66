"""The flags of `run` as one record, checked before anything is started."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.served_peers.engines import NAMES, SPECDEC, Site
from benchmarks.served_peers.prompts import LONG, SHORT
from benchmarks.served_peers.readings import OFF, ON, Load
from specdec_core.errors import InvalidRequestError

_LEAST_REQUESTS = 4
"""Of a cell: one stream asks so many, one after the other."""
_PAIR_WAVES = 4
"""So often a stream asks in each of the four goes of a paired turn. Two goes of a side take 5 s and
more: of 1.5 s single pairs differed by 10 %, of 4 s by 6; and of two sides of 26 s each, one after
the other, by 4 % still, as a machine has slow minutes."""


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
    first_requests: int
    first_streams: int
    max_tokens: int
    site: Site
    ready_timeout_s: float
    timeout_s: float

    def __post_init__(self) -> None:
        _check_known("engine", self.engines, NAMES)
        _check_known("kind of prompts", self.prompts, (SHORT, LONG))
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

    def pair_goes(self, number: int) -> tuple[str, ...]:
        """Speculation in each go of a paired turn. Each side has two, one around the other's, so
        that a machine that gets slower or faster meanwhile does so for both. Which comes first
        alternates."""
        first, other = (ON, OFF) if number % 2 == 0 else (OFF, ON)
        return first, other, other, first

    def pair_loads(self, number: int) -> list[Load]:
        return [
            self._load(SHORT, streams, temperature, number, _PAIR_WAVES * streams)
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
        pairs = (
            len(self.pair_goes(0)) * self.pairs * len(self.streams) * len(self.pair_temperatures)
        )
        return cells + pairs + 2 * self.rounds * bool(self.first_requests)


def _check_known(what: str, names: tuple[str, ...], known: tuple[str, ...]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        told = repr(unknown[0]) if unknown else "at all"
        raise InvalidRequestError(f"no {what} {told}; known are: {', '.join(known)}")
