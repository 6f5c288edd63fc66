"""From readings as JSON to medians over rounds, and ratios of turns that belong together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median, stdev
from typing import NamedTuple

from benchmarks.served_peers.readings import OFF, OFF_AGAIN, ON, Part, Record

# fmt: off
_T_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)
# fmt: on
"""Student's t: what 97.5 % lie below, for 1 to 30 degrees of freedom."""
_T_MANY = 2.042
"""For more: never too narrow."""
_ADDED = ("tokens", "seconds", "busy_tokens", "busy_s", "decode_tokens", "decode_s")
"""What a speed is of."""


class Ratio(NamedTuple):
    """Of paired turns."""

    middle: float
    """The median."""
    low: float | None
    high: float | None
    """The 95 % interval of the mean; None of fewer than two pairs."""
    num_pairs: int


def paired(mine: Sequence[float], theirs: Sequence[float]) -> Ratio | None:
    """Turn by turn; None where there is no turn of both. The interval is taken on logarithms, so
    that a ratio and its inverse come to the same."""
    ratios = [one / other for one, other in zip(mine, theirs, strict=True)]
    if not ratios:
        return None
    if len(ratios) == 1:
        return Ratio(ratios[0], None, None, 1)
    logs = [math.log(ratio) for ratio in ratios]
    degrees = len(logs) - 1
    quantile = _T_975[degrees - 1] if degrees <= len(_T_975) else _T_MANY
    half = quantile * stdev(logs) / math.sqrt(len(logs))
    middle = fmean(logs)
    return Ratio(median(ratios), math.exp(middle - half), math.exp(middle + half), len(ratios))


def rate(reading: Record) -> float:
    speed: float = reading["tokens"] / reading["seconds"]
    return speed


def busy_rate(reading: Record) -> float:
    speed: float = reading["busy_tokens"] / reading["busy_s"]
    return speed


def decode_rate(reading: Record) -> float:
    """Return tokens per second of one stream, counted from an answer's first chunk."""
    speed: float = reading["decode_tokens"] / reading["decode_s"]
    return speed


def ttft(reading: Record) -> float:
    milliseconds: float = reading["ttft_ms"]["p50"]
    return milliseconds


class Cells:
    """The readings of the part in which every engine is asked for the same."""

    def __init__(self, readings: Iterable[Record]) -> None:
        self._readings = [each for each in readings if each["part"] == Part.CELLS]

    @property
    def engines(self) -> list[str]:
        return list(dict.fromkeys(each["engine"] for each in self._readings))

    @property
    def shapes(self) -> list[tuple[str, int]]:
        """Kinds of prompts and numbers of streams."""
        shapes = dict.fromkeys((each["prompts"], each["streams"]) for each in self._readings)
        return list(shapes)

    def of(self, engine: str, prompts: str, streams: int) -> list[Record]:
        """One of each round in which it ran."""
        wanted = (engine, prompts, streams)
        return [
            each
            for each in self._readings
            if (each["engine"], each["prompts"], each["streams"]) == wanted
        ]

    def middle(
        self, engine: str, prompts: str, streams: int, figure: Callable[[Record], float]
    ) -> float | None:
        values = [figure(each) for each in self.of(engine, prompts, streams)]
        return median(values) if values else None

    def ratio(
        self,
        engine: str,
        other: str,
        prompts: str,
        streams: int,
        figure: Callable[[Record], float],
    ) -> Ratio | None:
        """Round by round, of the rounds that have both."""
        mine = {each["round"]: figure(each) for each in self.of(engine, prompts, streams)}
        theirs = {each["round"]: figure(each) for each in self.of(other, prompts, streams)}
        both = [number for number in mine if number in theirs]
        return paired([mine[number] for number in both], [theirs[number] for number in both])


class Pairing(NamedTuple):
    """Two arms of the same paired turns."""

    prompts: str
    streams: int
    temperature: float
    arm: str
    base: str
    """Arm that `arm` is divided by."""


def speculation_ratios(
    readings: Iterable[Record], figure: Callable[[Record], float] = rate
) -> dict[Pairing, Ratio]:
    """Return the ratio of every arm to no speculation, and of speculation as it ships to that with
    another maximum K, pair by pair."""
    return _arm_ratios(readings, Part.PAIRS, lambda each: each["pair"], figure)


def first_ratios(readings: Iterable[Record]) -> dict[Pairing, Ratio]:
    """Return on over off of the first requests after a start, round by round."""
    return _arm_ratios(readings, Part.FIRST, lambda each: each["round"], rate)


def _arm_ratios(
    readings: Iterable[Record],
    part: Part,
    turn: Callable[[Record], int],
    figure: Callable[[Record], float],
) -> dict[Pairing, Ratio]:
    turns: dict[tuple[str, int, float], dict[str, dict[int, list[Record]]]] = {}
    for each in readings:
        if each["part"] == part:
            shape = each["prompts"], each["streams"], each["temperature"]
            arms = turns.setdefault(shape, {})
            arms.setdefault(each["speculation"], {}).setdefault(turn(each), []).append(each)
    found = {}
    for shape, arms in turns.items():
        for arm, base in _compared(list(arms)):
            both = [number for number in arms[arm] if number in arms[base]]
            mine, theirs = ([figure(_together(arms[one][n])) for n in both] for one in (arm, base))
            ratio = paired(mine, theirs)
            if ratio is not None:
                found[Pairing(*shape, arm, base)] = ratio
    return found


def _compared(arms: Sequence[str]) -> list[tuple[str, str]]:
    """Return (arm, base) of every ratio that is of interest."""
    with_k = [arm for arm in arms if arm not in (ON, OFF, OFF_AGAIN)]
    over_off = [(arm, OFF) for arm in (ON, *with_k, OFF_AGAIN)]
    wanted = [*over_off, *((ON, arm) for arm in with_k)]
    return [(arm, base) for arm, base in wanted if arm in arms and base in arms]


def _together(goes: Sequence[Record]) -> Record:
    """What one side of a turn was asked in several goes, as one reading."""
    return {name: sum(each[name] for each in goes) for name in _ADDED if name in goes[0]}
