"""Charts as SVG text: a page with them needs no package and no file beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

_WIDTH, _HEIGHT = 560, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 34, 44
_COLOURS = ("#2563a8", "#c2571a", "#2e8540", "#7b3fa0", "#a0203c", "#5f6b76")
_GOAL = "#b3261e"
_BAR_HEIGHT = 22
_BAR_LABEL = 330


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChart:
    """Figures over sizes that stand at equal distances."""

    title: str
    x_label: str
    lines: Mapping[str, Mapping[int, float]]
    """Name -> size -> figure."""
    goals: Mapping[int, float] = field(default_factory=dict)
    """Size -> least figure, as marks."""
    suffix: str = ""

    def svg(self) -> str:
        sizes = sorted({size for line in self.lines.values() for size in line} | self.goals.keys())
        figures = [figure for line in self.lines.values() for figure in line.values()]
        top = nice_top(max([*figures, *self.goals.values()], default=1.0))
        scale = _Scale(sizes, top)
        parts = [*self._axes(scale), *self._marks(scale)]
        names = [*self.lines, "goal"] if self.goals else [*self.lines]
        colours = [*_COLOURS[: len(self.lines)], _GOAL]
        for number, name in enumerate(names):
            parts += _line(scale, self.lines.get(name, {}), colours[number])
            parts.append(_legend(number, len(names), name, colours[number]))
        return _svg(_WIDTH, _HEIGHT, self.title, parts)

    def _axes(self, scale: _Scale) -> list[str]:
        parts = []
        for step in range(5):
            value = scale.top * step / 4
            y = scale.y(value)
            parts.append(_rule(_LEFT, _WIDTH - _RIGHT, y))
            parts.append(_text(_LEFT - 8, y + 4, f"{_figure(value)}{self.suffix}", anchor="end"))
        bottom = _HEIGHT - _BOTTOM
        parts += [_text(scale.x(size), bottom + 16, str(size)) for size in scale.sizes]
        parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, bottom + 33, self.x_label))
        return parts

    def _marks(self, scale: _Scale) -> list[str]:
        """A short bar at each goal: a figure passes if it is not below."""
        return [
            f'<line x1="{scale.x(size) - 18:.1f}" x2="{scale.x(size) + 18:.1f}" '
            f'y1="{scale.y(least):.1f}" y2="{scale.y(least):.1f}" '
            f'stroke="{_GOAL}" stroke-width="2.5"/>'
            for size, least in self.goals.items()
        ]


@dataclass(frozen=True, slots=True)
class _Scale:
    sizes: Sequence[int]
    top: float

    def x(self, size: int) -> float:
        step = (_WIDTH - _LEFT - _RIGHT) / len(self.sizes)
        return _LEFT + step * (self.sizes.index(size) + 0.5)

    def y(self, value: float) -> float:
        height = _HEIGHT - _TOP - _BOTTOM
        return _HEIGHT - _BOTTOM - height * min(max(value / self.top, 0.0), 1.0)


def bars(title: str, shares: Sequence[tuple[str, float]]) -> str:
    """A bar for each share of 1, with its name before it."""
    parts = []
    width = _WIDTH - _BAR_LABEL - 60
    for number, (name, share) in enumerate(shares):
        y = _TOP + number * _BAR_HEIGHT
        parts.append(_text(_BAR_LABEL - 8, y + 15, _short(name), anchor="end"))
        parts.append(
            f'<rect x="{_BAR_LABEL}" y="{y + 3}" width="{max(width * share, 1):.1f}" '
            f'height="{_BAR_HEIGHT - 7}" fill="{_COLOURS[0]}"/>'
        )
        place = _BAR_LABEL + width * share + 6
        parts.append(_text(place, y + 15, f"{100 * share:.1f} %", anchor="start"))
    return _svg(_WIDTH, _TOP + len(shares) * _BAR_HEIGHT + 8, title, parts)


def nice_top(largest: float) -> float:
    """The end of an axis: a figure with round quarters."""
    if not largest > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    return next(
        f * power for f in (1, 1.2, 1.6, 2, 2.4, 3, 4, 6, 8, 10) if f * power >= largest * 0.9999
    )


def _line(scale: _Scale, line: Mapping[int, float], colour: str) -> list[str]:
    points = [(scale.x(size), scale.y(figure)) for size, figure in sorted(line.items())]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in points]
    stroke = f'fill="none" stroke="{colour}" stroke-width="2"'
    return [f'<polyline points="{path}" {stroke}/>', *dots]


def _legend(number: int, count: int, name: str, colour: str) -> str:
    step = (_WIDTH - _LEFT - _RIGHT) / count
    x = _LEFT + step * number
    box = f'<rect x="{x:.1f}" y="{_TOP - 13}" width="10" height="10" fill="{colour}"/>'
    return box + _text(x + 15, _TOP - 4, name, anchor="start")


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _rule(left: float, right: float, y: float) -> str:
    return f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#d9dde1"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "middle", colour: str = "#30363c") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"'
    return f"<text {place}>{escape(text)}</text>"


def _short(name: str, most: int = 48) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _svg(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    head = (
        f'<svg viewBox="0 0 {width} {height}" role="img" font-size="12" '
        f'font-family="system-ui, sans-serif" xmlns="http://www.w3.org/2000/svg">'
    )
    name = f"<title>{escape(title)}</title>"
    shown = f'<text x="{_LEFT}" y="13" font-weight="600" fill="#1b1f23">{escape(title)}</text>'
    return "".join([head, name, shown, *parts, "</svg>"])
