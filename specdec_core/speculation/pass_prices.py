"""Price of a pass by sequences, rows and cached tokens: expected first, then corrected by passes.

A replica's table gives the expected seconds before any pass was run. Without one they are guessed.

The model predicts the logarithm of a pass's seconds, relative to what was expected. It is a smooth
curve in the tokens of a sequence (a Kalman filter over a few knots), plus an offset for each size.
The curve starts flat. A wrong level shows in the first passes, and a wrong slope in few passes of
two sizes. The uncertainty of a price decides what is worth a probe (token_selection.py).

A machine is slower at times, for passes of all sizes. That moves the whole curve.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from math import exp, log, log2, sqrt
from typing import NamedTuple

from specdec_core.step_times import StepTime

REPORTED_SIZES = (1, 8, 32)
"""Numbers of sequences for which the log reports the cost of a drafted row."""
_CANNOT_PAY = 0.9
"""Cost of a row, as a share of a plain token, above which only nearly certain tokens pay."""

_MOST_READING = 0.9
"""Maximum share of a timed pass that is attributed to its cached tokens."""
_Run = list[tuple[float, float]]
"""Points (x, seconds), ascending."""


class PriceTable:
    """A table that interpolates measured times, by sequences, tokens of each, and cached tokens of
    each."""

    def __init__(self, times: Sequence[StepTime]) -> None:
        self._cached_s = _seconds_of_a_cached_token(times)
        runs: dict[int, dict[float, float]] = {}
        for time in times:
            seconds = time.seconds - self._cached_s * time.num_sequences * time.num_cached
            tokens = time.num_rows / time.num_sequences
            runs.setdefault(time.num_sequences, {}).setdefault(tokens, seconds)
        self._tokens = sorted({tokens for run in runs.values() for tokens in run})
        if len(self._tokens) == 1:
            self._tokens.append(2.0 * self._tokens[0])
        self._counts = sorted(runs)
        self._seconds = _never_falling(
            [_filled(runs, count, self._tokens) for count in self._counts]
        )

    def at(self, sequences: int, rows: int, cached: float) -> float:
        """Return the seconds of `rows` rows of sequences that have `cached` tokens each."""
        low, share = _position(self._counts, sequences)
        sharing = sequences if len(self._counts) > 1 else self._counts[0]
        tokens, token_share = _position(self._tokens, rows / sharing)
        seconds = 0.0
        for run, weight in ((low, 1.0 - share), (low + 1, share)):
            if weight:
                here = self._seconds[run]
                step = here[tokens + 1] - here[tokens] if token_share else 0.0
                seconds += weight * (here[tokens] + token_share * step)
        return max(seconds, self._seconds[0][0]) + self._cached_s * sequences * cached


def row_prices(times: Sequence[StepTime]) -> str:
    """Return the cost of a drafted row of every sequence, for the log; empty if it was not
    timed."""
    if len(times) < 2:
        return ""
    table, shares = PriceTable(times), []
    for streams in REPORTED_SIZES:
        plain_s = table.at(streams, streams, 0.0)
        share = (table.at(streams, 2 * streams, 0.0) - plain_s) / plain_s
        remark = " (pays only if it is nearly certain)" if share > _CANNOT_PAY else ""
        shares.append(f"{share:.2f} at {streams}{remark}")
    return f"cost of a drafted row, as a share of a plain token, by streams: {', '.join(shares)}"


def _position(points: Sequence[float], x: float) -> tuple[int, float]:
    """Return the point before `x`, and the distance of `x` from it in steps to the next point."""
    if len(points) == 1:
        return 0, 0.0
    low = min(max(bisect_right(points, x) - 1, 0), len(points) - 2)  # the ends reach beyond
    return low, (x - points[low]) / (points[low + 1] - points[low])


def _at(run: _Run, x: float) -> float:
    """Return the interpolated seconds of a run at `x`, beyond its points as well."""
    low, share = _position([point for point, _ in run], x)
    return run[low][1] + (share * (run[low + 1][1] - run[low][1]) if share else 0.0)


def _filled(
    runs: dict[int, dict[float, float]], count: int, tokens: Sequence[float]
) -> list[float]:
    """Return the seconds of `count` sequences with each number of tokens.

    A number of tokens that was not timed is taken from this count's others. If this count has no
    others, the seconds grow as they do with other counts.
    """
    own = sorted(runs[count].items())
    if len(own) > 1:
        return [_at(own, one) for one in tokens]
    [(timed, seconds)] = own
    long = {n: sorted(run.items()) for n, run in sorted(runs.items()) if len(run) > 1}
    if not long:
        plain = sorted((n * one, s) for n, run in runs.items() for one, s in run.items())
        return [seconds + _at(plain, count * one) - _at(plain, count * timed) for one in tokens]
    growth = [
        _at(
            [(0, 0.0), *((n, _at(run, one) - _at(run, timed)) for n, run in long.items())],
            count,
        )
        for one in tokens
    ]
    return [seconds + added for added in growth]


def _never_falling(grid: list[list[float]]) -> list[list[float]]:
    """Return the seconds of a grid in which neither tokens nor sequences make a pass shorter."""
    for run, seconds in enumerate(grid):
        for index in range(len(seconds)):
            if index:
                seconds[index] = max(seconds[index], seconds[index - 1])
            if run:
                seconds[index] = max(seconds[index], grid[run - 1][index])
    return grid


def _seconds_of_a_cached_token(times: Sequence[StepTime]) -> float:
    """Return how much longer a pass takes for one more cached token of one sequence.

    The result is 0 if no size was timed with two numbers of cached tokens.
    """
    added_s = added_tokens = 0.0
    for one in times:
        for other in times:
            if one[:2] == other[:2] and one.num_cached < other.num_cached:
                added_s += other.seconds - one.seconds
                added_tokens += one.num_sequences * (other.num_cached - one.num_cached)
    if not added_tokens:
        return 0.0
    # A long context may have met other work, but no pass is shorter than what it reads.
    most = min(
        [one.seconds / one.num_sequences / one.num_cached for one in times if one.num_cached]
    )
    return min(max(added_s / added_tokens, 0.0), _MOST_READING * most)


def guessed_prices(fixed_rows: float) -> PriceTable:
    """Return prices in an arbitrary unit, if nothing was timed.

    The fixed part of a pass takes as long as `fixed_rows` rows. A CPU without matrix units has 2,
    a GPU 100.
    """
    return PriceTable([StepTime(1, rows, fixed_rows + rows) for rows in (1, 2)])


_GUESSED_PRICES = guessed_prices(fixed_rows=8.0)
GUESSED_DRAFTS = PriceTable([StepTime(n, n * k, 0.5 + k) for n in (1, 2) for k in (1, 2)])
"""Prices of a draft's leases in draft steps, if nothing was timed. The lease itself takes half a
step."""
_FINE = 8
"""Classes of sizes per octave. Sizes below 16 have a class each."""
_KNOTS = 5
"""Number of points of the curve: 1, 2, 4, 8 and 16 tokens of each sequence."""
_NOISE = 0.08
"""Standard deviation of one pass among those of its size. This and the deviations below are in
logarithms."""
_LONG = 0.5
"""Surprise from which a pass has probably met other work."""
_LEVEL = 10.0
"""Standard deviation of the first pass from what was expected."""
_PACE = 0.01
"""Standard deviation of the machine's pace from one pass to the next."""
_SLOPE = {False: 0.7, True: 0.4}
"""Standard deviation of the slope for twice as many tokens, by whether a replica reported
prices."""
_BEND = 0.2
"""Standard deviation of the slope's change for twice as many tokens."""
_BATCH = {False: 0.3, True: 0.1}
"""Standard deviation for twice as many sequences, by whether a replica reported prices."""
_OWN = 0.1
"""Standard deviation of one size from the curve."""
_MEMORY = 1000.0
"""Passes after which the curve is as uncertain as at first."""
_FAR = 4.0
"""Standard deviations from which a pass has met other work, or the machine has changed."""
_NUM_IN_A_ROW = 3
"""Number of such passes, all slower or all faster, that show a new pace of the machine."""
_CONVERGED = 32
"""Passes after which one more hardly changes a price."""
_READ_EVERY = 8
"""Passes after which converged prices are computed again. The prices of a group take 0.5 ms, and a
target would wait for them."""
_LARGE_SURPRISE = 0.2
"""Surprise of a pass, as a logarithm, after which prices are computed again immediately."""


class Price(NamedTuple):
    """Price of a pass."""

    seconds: float
    """The most likely duration."""
    spread: float
    """Standard deviation as a logarithm, relative to a pass of the last pass's size."""


@dataclass(eq=False, slots=True)
class _Size:
    """Difference of one class of sizes from the curve."""

    offset: float = 0.0
    variance: float = _OWN**2
    last_seen: int = 0
    """Number of the last pass of this size."""
    num_far: int = 0
    """Number of its last passes that were far off."""


@dataclass(eq=False, slots=True)
class PassPrices:
    """Prices of one kind of pass: a target's, a draft's lease, or a draft step. In seconds."""

    tile_rows: int = 0
    """Rows that one call of the narrowest linear layer takes; 0 if any number of rows is one
    call."""
    expected: PriceTable = _GUESSED_PRICES
    num_seen: int = 0
    """Number of passes that were observed."""
    was_timed: bool = False
    """Whether a replica reported the prices of several sizes."""
    cached: float = 0.0
    """Cached tokens of a sequence, in the last pass."""
    _last_tokens: float = 1.0
    """Tokens of a sequence in the last pass."""
    _curve: list[float] = field(default_factory=lambda: [0.0] * (_KNOTS + 1))
    """Values of the curve at the knots, then the change for twice as many sequences."""
    _spread: list[list[float]] = field(default_factory=list)
    """Covariance of the curve's points."""
    _drift: list[list[float]] = field(default_factory=list)
    """Covariance that each pass adds."""
    _sizes: dict[tuple[int, int], _Size] = field(default_factory=dict)
    _far: list[float] = field(default_factory=list)
    """Surprises of the last passes, one after another, all on one side."""
    _computed: dict[tuple[int, int], Price] = field(default_factory=dict)
    """Prices that were computed. Plans ask for the same sizes again and again."""

    def __post_init__(self) -> None:
        self._doubt(False)

    def _doubt(self, was_reported: bool) -> None:
        shape = _shape(_SLOPE[was_reported], _BEND, _BATCH[was_reported])
        self._spread = _plus(shape, _LEVEL**2)
        self._drift = _plus([[one / _MEMORY for one in row] for row in shape], _PACE**2)

    @property
    def is_known(self) -> bool:
        return self.was_timed or self.num_seen > 0

    def expect(self, times: Sequence[StepTime]) -> None:
        """Take the measured step times of a replica, unless passes were run or reported before."""
        if self.is_known or len(times) < 2:
            return
        self.expected, self.was_timed = PriceTable(times), True
        self.cached = max(time.num_cached for time in times)
        self._doubt(True)
        self._computed.clear()

    def observe(self, sequences: int, rows: int, seconds: float, cached: float = 0.0) -> None:
        if seconds <= 0.0:
            return  # a driver's clock may stand still
        self.cached, self._last_tokens = cached, rows / sequences
        self.num_seen += 1
        for row, drift in zip(self._spread, self._drift, strict=True):
            for index, more in enumerate(drift):
                row[index] += more
        size = self._sizes.setdefault(self._key(sequences, rows), _Size())
        age = self.num_seen - size.last_seen
        size.variance = min(size.variance + age * _OWN**2 / _MEMORY, max(size.variance, _OWN**2))
        size.last_seen = self.num_seen
        point = _coordinates(sequences, rows)
        ratio = log(seconds / self.expected.at(sequences, rows, cached))
        surprise = ratio - _on(point, self._curve) - size.offset
        is_surprising = self.num_seen <= _CONVERGED or abs(surprise) > _LARGE_SURPRISE
        if is_surprising or self.num_seen % _READ_EVERY == 0:
            self._computed.clear()
        self._learn(size, point, surprise)

    def _learn(self, size: _Size, point: _Coordinates, surprise: float) -> None:
        covered = [_on(point, row) for row in self._spread]
        variance = _on(point, covered) + size.variance + _NOISE**2
        if self.num_seen > 1 and abs(surprise) > _FAR * sqrt(variance):
            variance = self._doubt_far(size, surprise, variance)
            if variance == 0.0:
                return
            covered = [_on(point, row) for row in self._spread]
        else:
            self._far.clear()
            size.num_far = 0
            # Other work makes a pass longer, never shorter. So a pass that is much too long says
            # little, and its price stays uncertain.
            variance += max(surprise - _LONG, 0.0) ** 2
        share = surprise / variance
        for index, cover in enumerate(covered):
            self._curve[index] += cover * share
            row = self._spread[index]
            for other, other_cover in enumerate(covered):
                row[other] -= cover * other_cover / variance
        size.offset += size.variance * share
        size.variance -= size.variance**2 / variance

    def _doubt_far(self, size: _Size, surprise: float, variance: float) -> float:
        """Count a pass that is far from its price, and decide what caused it.

        A single such pass is other work. Several in a row show a change of the machine. Several of
        one size, among good passes, show a change of this size. In the last two cases, return the
        new variance of the surprise. Return 0 for a pass that is left out.
        """
        if self._far and self._far[0] * surprise < 0.0:
            self._far.clear()
        self._far.append(surprise)
        size.num_far += 1
        if max(len(self._far), size.num_far) < _NUM_IN_A_ROW:
            return 0.0
        self._take_as_change(size, surprise)
        return variance + surprise**2

    def _take_as_change(self, size: _Size, surprise: float) -> None:
        """Make the curve, or the size alone, as uncertain as the last passes show."""
        if len(self._far) == _NUM_IN_A_ROW:
            self._spread = _plus(self._spread, surprise**2)
            self._far.clear()
        else:
            size.variance += surprise**2
        size.num_far = 0

    def price(self, sequences: int, rows: int) -> Price:
        """Return the price of a pass of `rows` rows."""
        key = sequences, rows
        if key not in self._computed:
            self._computed[key] = self._priced(sequences, rows)
        return self._computed[key]

    def _priced(self, sequences: int, rows: int) -> Price:
        point, key = _coordinates(sequences, rows), self._key(sequences, rows)
        size = self._sizes.get(key) or _Size(last_seen=self.num_seen)
        variance = size.variance + (self.num_seen - size.last_seen) * _OWN**2 / _MEMORY
        expected = self.expected.at(sequences, rows, self.cached)
        seconds = expected * exp(_on(point, self._curve) + size.offset)
        last_rows = max(round(sequences * self._last_tokens), sequences)
        if rows != last_rows:
            bound = min if rows < last_rows else max  # rows never make a pass shorter
            seconds = bound(seconds, self.price(sequences, last_rows).seconds)
        last_key = self._key(sequences, last_rows)
        if key == last_key:
            return Price(seconds, 0.0)
        last = self._sizes.get(last_key)
        both = variance + (_OWN**2 if last is None else last.variance)
        both += self._spread_between(point, _coordinates(sequences, last_rows))
        return Price(seconds, sqrt(max(both, variance)))

    def _spread_between(self, one: _Coordinates, other: _Coordinates) -> float:
        """Return the variance of the difference between two points of the curve."""
        (knot, way, _), (last, last_way, _) = one, other
        apart = (knot, 1.0 - way), (knot + 1, way), (last, last_way - 1.0), (last + 1, -last_way)
        variance = 0.0
        for row, weight in apart:
            for column, other_weight in apart:
                variance += weight * other_weight * self._spread[row][column]
        return variance

    def row_share(self, sequences: int) -> float:
        """Return the cost of a drafted row of every sequence, as a share of a plain token."""
        plain_s = self.price(sequences, sequences).seconds
        return (self.price(sequences, 2 * sequences).seconds - plain_s) / plain_s

    def last_alike(self, rows: int) -> int:
        """Return the maximum number of rows that count as the same size as `rows`."""
        end = last_of_class(rows, _FINE)
        return min(end, -(-rows // self.tile_rows) * self.tile_rows) if self.tile_rows else end

    def _key(self, sequences: int, rows: int) -> tuple[int, int]:
        return last_of_class(sequences, _FINE), self.last_alike(rows)


_Matrix = list[list[float]]
_Coordinates = tuple[int, float, float]
"""The knot before a point, the way to the next knot, and the octaves of sequences relative to 8."""


@lru_cache(maxsize=4096)
def last_of_class(count: int, per_octave: int) -> int:
    """Return the largest size of the class that `count` belongs to.

    There are `per_octave` classes between a power of two and the next. A size below twice this
    number has a class of its own.
    """
    step = max(1 << (count.bit_length() - 1), per_octave) // per_octave
    return -(-count // step) * step


@lru_cache(maxsize=4096)
def _coordinates(sequences: int, rows: int) -> _Coordinates:
    octaves = min(log2(rows / sequences), _KNOTS - 1.0)
    knot = min(int(octaves), _KNOTS - 2)
    return knot, octaves - knot, log2(sequences) - 3.0


def _on(point: _Coordinates, values: list[float]) -> float:
    """Return the value of a curve at a point."""
    knot, way, batch = point
    here = values[knot]
    return here + way * (values[knot + 1] - here) + batch * values[_KNOTS]


def _shape(slope: float, bend: float, batch: float) -> _Matrix:
    """Return the covariance of a curve that begins at 0."""
    shape = [[0.0] * (_KNOTS + 1) for _ in range(_KNOTS + 1)]
    for one, other in product(range(_KNOTS), repeat=2):
        shape[one][other] = slope**2 * one * other + bend**2 * min(one, other)
    shape[_KNOTS][_KNOTS] = batch**2
    return shape


def _plus(spread: _Matrix, level: float) -> _Matrix:
    """Return the covariance after adding a variance that all knots have in common."""
    curve = [[*(one + level for one in row[:_KNOTS]), row[_KNOTS]] for row in spread[:_KNOTS]]
    return [*curve, [*spread[_KNOTS]]]
