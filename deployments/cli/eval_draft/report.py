"""Report of an evaluation: figures for every K, the best K, and a verdict in words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from deployments.cli.timed_run import TimedRun
from specdec_core.errors import InvalidRequestError
from specdec_core.model import CachedModel
from specdec_core.request import RequestStats
from specdec_core.speculation.pass_prices import PriceTable

USEFUL_SPEEDUP = 1.05
"""Minimum speed-up of a draft that is worth its memory. Measurements differ by as much from run to
run."""


_CONTEXT = 192
"""Cached tokens of a sequence, for which costs are reported."""


@dataclass(frozen=True, slots=True)
class PassCosts:
    """Costs in seconds, for one batch size."""

    draft_step_s: float
    """Seconds to draft one token for every row. 0 without a draft model."""
    target_pass_s: dict[int, float]
    """Seconds of a target pass by the number of drafted tokens checked. 0 tokens is plain
    decoding."""

    def ratio(self, num_draft_tokens: int) -> float:
        """Return c: the cost of a draft step relative to a target pass that checks K drafted
        tokens."""
        return self.draft_step_s / self.target_pass_s[num_draft_tokens]


def pass_costs(
    target: CachedModel, draft: CachedModel | None, batch_size: int, spec_tokens: Sequence[int]
) -> PassCosts:
    """Return the costs from the passes that were timed when the models were loaded.

    Raises InvalidRequestError if none was timed.
    """
    if not all(model.step_times for model in (target, draft) if model is not None):
        raise InvalidRequestError(
            "no pass was timed: costs need a max_model_len of at least 17 tokens"
        )
    table, longest = PriceTable(target.step_times), max(spec_tokens)
    passes = {k: table.at(batch_size, batch_size * (k + 1), _CONTEXT) for k in (0, *spec_tokens)}
    if draft is None:
        return PassCosts(0.0, passes)
    lease_s = PriceTable(draft.step_times).at(batch_size, batch_size * longest, _CONTEXT)
    return PassCosts(lease_s / longest, passes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Results of one K."""

    num_draft_tokens: int
    run: TimedRun
    plain: TimedRun
    costs: PassCosts
    categories: Mapping[str, str]
    """Category by request ID."""

    @property
    def measured_speedup(self) -> float:
        return self.run.tokens_per_second / self.plain.tokens_per_second

    @property
    def predicted_speedup(self) -> float:
        """Tokens per round divided by the cost of a round in plain passes.

        Prefill and scheduling are left out. A hybrid's rounds count as drafted by the model,
        although they may be cheaper.
        """
        plain_s = self.costs.target_pass_s[0]
        drafting_s = self.num_draft_tokens * self.costs.draft_step_s
        proposed_s = self.costs.target_pass_s[self.num_draft_tokens] + drafting_s
        share = self.run.proposed_share
        return self.run.tokens_per_round * plain_s / (share * proposed_s + (1.0 - share) * plain_s)

    @property
    def by_category(self) -> dict[str, float]:
        grouped = defaultdict(list)
        for name, stats in self.run.request_stats.items():
            grouped[self.categories[name]].append(stats)
        return {name: acceptance_length(stats) for name, stats in sorted(grouped.items())}

    def record(self) -> dict[str, Any]:
        return {
            "num_draft_tokens": self.num_draft_tokens,
            **self.run.totals(),
            "tokens_per_round": self.run.tokens_per_round,
            "proposed_share": self.run.proposed_share,
            "acceptance_length_by_category": self.by_category,
            "cost_ratio": self.costs.ratio(self.num_draft_tokens),
            "target_pass_seconds": self.costs.target_pass_s[self.num_draft_tokens],
            "predicted_speedup": self.predicted_speedup,
            "measured_speedup": self.measured_speedup,
            "different_outputs": self.run.num_different(self.plain),
        }


def acceptance_length(stats: Sequence[RequestStats]) -> float:
    """Return the tokens committed per round with a proposal, over several requests."""
    rounds = sum(s.num_proposed_rounds for s in stats)
    return 1.0 + sum(s.num_accepted for s in stats) / rounds if rounds else 0.0


def best_point(points: Sequence[Point]) -> Point:
    return max(points, key=lambda point: point.measured_speedup)


def verdict(points: Sequence[Point]) -> str:
    """Return in words whether the draft pays, and if not, the reason."""
    best = best_point(points)
    k, speedup = best.num_draft_tokens, best.measured_speedup
    if speedup >= USEFUL_SPEEDUP:
        return f"useful: {speedup:.2f} times as fast as plain decoding at K = {k}"
    costs, length = best.costs, best.run.stats.mean_acceptance_length
    plain_s = costs.target_pass_s[0]
    room = (length * plain_s - costs.target_pass_s[k]) / (k * plain_s)
    words = (
        f"not useful: at best {speedup:.2f} times as fast as plain decoding, at K = {k}; "
        f"a draft step takes {costs.draft_step_s / plain_s:.3f} of a plain pass, and a "
        f"round commits {length:.2f} tokens"
    )
    if room <= 0:
        return f"{words}, which would not pay for verifying them even if drafting were free"
    return f"{words}: to be useful, a step may take at most {room:.3f}"


def record(points: Sequence[Point], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything as JSON."""
    plain, costs = points[0].plain, points[0].costs
    return {
        "settings": dict(settings),
        "plain": plain.totals(),
        "plain_pass_seconds": costs.target_pass_s[0],
        "draft_step_seconds": costs.draft_step_s,
        "points": [point.record() for point in points],
        "best_num_draft_tokens": best_point(points).num_draft_tokens,
        "verdict": verdict(points),
    }


def points_table(points: Sequence[Point]) -> Table:
    table = Table("K", "acceptance length", "c", "predicted", "measured", "tokens/s", "different")
    for point in points:
        table.add_row(
            str(point.num_draft_tokens),
            f"{point.run.stats.mean_acceptance_length:.2f}",
            f"{point.costs.ratio(point.num_draft_tokens):.3f}",
            f"{point.predicted_speedup:.2f}",
            f"{point.measured_speedup:.2f}",
            f"{point.run.tokens_per_second:.1f}",
            str(point.run.num_different(point.plain)),
        )
    return table


def positions_line(point: Point) -> str:
    """Return a line with the acceptance per position, over the rounds that drafted that far."""
    shares = point.record()["acceptance_per_position"]
    shown = ", ".join(f"{share:.2f}" for share in shares)
    return f"accepted per position at K = {point.num_draft_tokens}: {shown}"


def categories_table(point: Point) -> Table:
    table = Table("category", f"acceptance length at K = {point.num_draft_tokens}")
    for name, length in point.by_category.items():
        table.add_row(name or "-", f"{length:.2f}")
    return table
