"""The acceptance figures of the shipped default, each next to its goal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from benchmarks.served_peers.engines import ENGINE, LLAMA, SPECDEC, VLLM
from benchmarks.served_peers.figures import (
    Cells,
    Pairing,
    Ratio,
    busy_rate,
    decode_rate,
    first_ratios,
    rate,
    speculation_ratios,
    ttft,
)
from benchmarks.served_peers.prompts import SHORT
from benchmarks.served_peers.readings import OFF, ON

_LEAST_OVER_ENGINE = {1: 0.78, 8: 0.75, 16: 0.75, 32: 0.72}
_LEAST_OVER_PEER = {LLAMA: 1.2, VLLM: 1.3}
_AIM_OVER_PEER = {LLAMA: 1.3, VLLM: 1.4}
_MOST_TTFT = 1.0
_LEAST_SPECULATION = 0.98
_LEAST_OF_INTERVAL = 0.95
"""What the whole interval of speculation on over off lies above."""


class Figure(NamedTuple):
    """One line of the acceptance table."""

    what: str
    ratio: Ratio
    goal: str
    is_met: bool | None
    """None: the figure has no goal, or too few turns for its interval."""


def acceptance(found: dict[str, Any]) -> list[Figure]:
    """Every acceptance figure that the readings have."""
    cells = Cells(found["readings"])
    return [
        *_over_engine(cells),
        *_over_peers(cells),
        *_ttfts(cells),
        *_speculation(found),
    ]


def _over_engine(cells: Cells) -> Iterator[Figure]:
    for prompts, streams in cells.shapes:
        ratio = cells.ratio(SPECDEC, ENGINE, prompts, streams, rate)
        if ratio is not None:
            least = _LEAST_OVER_ENGINE.get(streams) if prompts == SHORT else None
            what = f"serve / plain engine, tokens/s, {_shape(prompts, streams)}"
            yield _at_least(what, ratio, least)


def _over_peers(cells: Cells) -> Iterator[Figure]:
    """Over the fastest of a peer's own modes, cell by cell."""
    for peer, least in _LEAST_OVER_PEER.items():
        for prompts, streams in cells.shapes:
            best = _best(cells, peer, prompts, streams)
            ratio = cells.ratio(SPECDEC, best, prompts, streams, rate) if best else None
            if ratio is not None:
                what = f"serve / {best}, tokens/s, {_shape(prompts, streams)}"
                figure = _at_least(what, ratio, least)
                yield figure._replace(goal=f"{figure.goal} (aim {_AIM_OVER_PEER[peer]:g})")


def _best(cells: Cells, peer: str, prompts: str, streams: int) -> str | None:
    modes = [name for name in cells.engines if name.startswith(peer)]
    speeds = {name: cells.middle(name, prompts, streams, rate) for name in modes}
    known = {name: speed for name, speed in speeds.items() if speed is not None}
    return max(known, key=lambda name: known[name], default=None)


def _ttfts(cells: Cells) -> Iterator[Figure]:
    for peer in _LEAST_OVER_PEER:
        for prompts, streams in cells.shapes:
            modes = [name for name in cells.engines if name.startswith(peer)]
            middles = {name: cells.middle(name, prompts, streams, ttft) for name in modes}
            known = {name: value for name, value in middles.items() if value is not None}
            best = min(known, key=lambda name: known[name], default=None)
            ratio = cells.ratio(SPECDEC, best, prompts, streams, ttft) if best else None
            if ratio is not None:
                what = f"serve / {best}, TTFT p50, {_shape(prompts, streams)}"
                yield Figure(what, ratio, f"<= {_MOST_TTFT:g}", ratio.middle <= _MOST_TTFT)


def _speculation(found: dict[str, Any]) -> Iterator[Figure]:
    readings = found["readings"]
    # Results from before 28 November 2026 do not tell it.
    has_busy = [each for each in readings if "busy_s" in each]
    # Results from before 30 November 2026 do not tell it.
    has_decode = [each for each in readings if "decode_s" in each]
    for when, own, figure in (
        ("", readings, rate),
        (", all streams busy", has_busy, busy_rate),
        (", after the first token", has_decode, decode_rate),
    ):
        for pairing, ratio in speculation_ratios(own, figure).items():
            what = f"{_arms(pairing)}, temperature {pairing.temperature:g}{when}"
            has_goal = (pairing.arm, pairing.base) == (ON, OFF)
            yield _on_over_off(what, ratio) if has_goal else Figure(what, ratio, "-", None)
    number = found["settings"]["first_requests"]
    for pairing, ratio in first_ratios(readings).items():
        after = f"first {number} requests after a start"
        what = f"speculation on / off, {after}, {_number(pairing.streams)}"
        yield _on_over_off(what, ratio)


def _arms(pairing: Pairing) -> str:
    arms = f"speculation {pairing.arm} / {pairing.base}"
    prompts = "" if pairing.prompts == SHORT else f"{pairing.prompts} prompts, "
    return f"{arms}, {prompts}{_number(pairing.streams)}"


def _at_least(what: str, ratio: Ratio, least: float | None) -> Figure:
    if least is None:
        return Figure(what, ratio, "-", None)
    return Figure(what, ratio, f">= {least:g}", ratio.middle >= least)


def _on_over_off(what: str, ratio: Ratio) -> Figure:
    goal = f">= {_LEAST_SPECULATION:g}, interval >= {_LEAST_OF_INTERVAL:g}"
    if ratio.low is None:
        return Figure(what, ratio, goal, None)
    is_met = ratio.middle >= _LEAST_SPECULATION and ratio.low >= _LEAST_OF_INTERVAL
    return Figure(what, ratio, goal, is_met)


def _shape(prompts: str, streams: int) -> str:
    return f"{prompts} prompts, {_number(streams)}"


def _number(streams: int) -> str:
    return f"{streams} stream{'s' if streams > 1 else ''}"
