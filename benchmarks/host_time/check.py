"""Compare the model with rounds that were measured on an H100 (`rounds_of_one_engine.txt`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.host_time.report import Figures

COMMIT = "ecea5c2"
"""Commit whose rounds were measured."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Milliseconds a round on the GPU, and the share by which the model may miss them."""

    least_ms: float
    most_ms: float
    tolerance: float

    def allows(self, round_ms: float) -> bool:
        return (
            self.least_ms * (1 - self.tolerance) <= round_ms <= self.most_ms * (1 + self.tolerance)
        )


EXPECTED = {
    "h100/8/plain": Expected(7.4, 7.4, 0.1),
    "h100/64/plain": Expected(10.6, 10.6, 0.1),
    "h100/128/plain": Expected(13.7, 13.7, 0.1),
    "h100/8/draft": Expected(10.7, 10.7, 0.2),
    "h100/64/draft": Expected(19.0, 21.0, 0.2),
    "h100/128/draft": Expected(18.0, 27.0, 0.2),
}


def recorded_round_ms(one: Figures, answer_len: int) -> float:
    """Return a round's milliseconds as the file has them.

    It divides the tokens of a whole run by all rounds, and these by the tokens per second of the
    rounds in which all rows take part. With a draft, rounds that read prompts make that differ from
    the mean time of a round.
    """
    return 1e3 * one.rows * answer_len / one.all_rounds / one.tokens_per_s


def comparison(figures: Iterable[Figures], answer_len: int) -> list[str]:
    """Return a line for each cell that was measured on the H100."""
    lines = []
    for one in figures:
        expected = EXPECTED.get(one.cell)
        if expected is not None:
            round_ms = recorded_round_ms(one, answer_len)
            verdict = "agrees" if expected.allows(round_ms) else "MISSES"
            lines.append(
                f"{one.cell:<15} modelled {round_ms:6.2f} ms, measured {expected.least_ms:.1f} "
                f"to {expected.most_ms:.1f} ms, allowed {expected.tolerance:.0%}: {verdict}"
            )
    return lines
