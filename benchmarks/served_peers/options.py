"""The flags of the commands, checked before anything is started."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.harness.commands import fractions, known, numbers
from benchmarks.served_peers.arms import Arm, arms_of, goes
from benchmarks.served_peers.engines import NAMES, SPECDEC, Site
from benchmarks.served_peers.prompts import COPYING_KINDS, FILE, LONG, SHORT
from benchmarks.served_peers.readings import Load
from deployments.config.flags import OUTPUT_FILE, REQUIRED, argument, flag, section
from specdec_core.errors import InvalidRequestError

_DEFAULT_ENGINES = (
    "specdec,engine,vllm,vllm-ngram,llama-bf16,llama-bf16-ngram,llama-q4,llama-q4-ngram"
)
_LEAST_REQUESTS = 4
"""Of a cell: one stream asks so many, one after the other."""
_PAIR_WAVES = 4
"""So often a stream asks in each of the four goes of a paired turn. Two goes of a side take 5 s and
more: of 1.5 s single pairs differed by 10 %, of 4 s by 6; and of two sides of 26 s each, one after
the other, by 4 % still, as a machine has slow minutes."""

_PORTS = 2
"""Ports of a specdec server: HTTP and gRPC."""


@dataclass(frozen=True, kw_only=True)
class ShowOptions:
    """How a result is shown."""

    plot: Path | None = flag(None, "The picture, as PNG.", **OUTPUT_FILE)
    markdown: bool = flag(False, "Print the tables as Markdown.", "--markdown")


@dataclass(frozen=True, kw_only=True)
class SetupOptions:
    """The flags of `setup`."""

    site: Site = section(Site, ("venvs", "llama_cpp", "model"))


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """The flags of `report`."""

    result: Path = argument(REQUIRED, "What `run --save-result` wrote.", "FILE")
    show: ShowOptions = section(ShowOptions)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The flags of the command. Lists are separated by commas."""

    site: Site = section(Site)
    engines: tuple[str, ...] = flag(
        _DEFAULT_ENGINES, f"In this order; of {', '.join(NAMES)}.", parse=known("engine", NAMES)
    )
    rounds: int = flag(3, "Turns of every engine.", min=1)
    streams: tuple[int, ...] = flag("1,8,16,32", "Requests at a time.", parse=numbers)
    long_streams: tuple[int, ...] = flag(
        "",
        "With long prompts, of which a slow engine reads 992 tokens for each.",
        parse=numbers,
        show_default="as --streams",
    )
    prompts: tuple[str, ...] = flag(
        "short,long", "short, long or both.", parse=known("kind of prompts", (SHORT, LONG))
    )
    pairs: int = flag(
        10,
        "Paired turns of specdec with and without speculation, in all, for every number of "
        "streams and temperature.",
        min=0,
    )
    pair_temperatures: tuple[float, ...] = flag("0,0.8", "Of paired turns.", parse=fractions)
    pair_prompts: tuple[str, ...] = flag(
        "short",
        f"Prompts of paired turns: short, long, {', '.join(COPYING_KINDS)}.",
        parse=known("kind of prompts for pairs", (SHORT, LONG, *COPYING_KINDS)),
    )
    spec_tokens: tuple[int, ...] = flag(
        "",
        "Maximum K of further arms of paired turns. Each has its own specdec server, which runs at "
        "the same time.",
        parse=numbers,
    )
    off_pairs: bool = flag(
        False, "A second arm without speculation, which shows the noise.", "--off-pairs"
    )
    first_requests: int = flag(20, "Of specdec after a start, with and without speculation.", min=0)
    first_streams: int = flag(8, "Of these, at a time.", min=1)
    max_tokens: int = flag(128, "Tokens of every answer; with text to copy their maximum.", min=1)
    input: Path = flag(FILE, "Prompts: JSON lines with `turns` and category short or long.")
    ready_timeout_s: float = flag(600.0, "Seconds for one start.", "--ready-timeout")
    timeout_s: float = flag(900.0, "Seconds for one request.", "--timeout")
    save_result: Path | None = flag(
        None, "All readings, as JSON; kept after every turn.", **OUTPUT_FILE
    )
    show: ShowOptions = section(ShowOptions)

    def __post_init__(self) -> None:
        if min(*self.streams, *self.long_streams, 1) < 1:
            raise InvalidRequestError("streams are at least 1")

    def settled(self) -> RunOptions:
        """Return the options with everything that follows from others."""
        long_streams = self.long_streams or self.streams
        site = replace(self.site, max_streams=max(*self.streams, *long_streams))
        return replace(self, site=site, long_streams=long_streams)

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
