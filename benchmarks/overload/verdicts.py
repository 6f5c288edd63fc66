"""What a burst showed: how many requests ended how, and what was not as promised. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.overload.questions import Ids, Outcome, Verdict, Way

_MOST_REASONS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One burst, judged."""

    counts: Mapping[tuple[Way, Verdict], int]
    num_wrong: int
    """Answers whose ids are not those of plain decoding."""
    failures: Mapping[str, int]
    """How often each reason was one."""
    retry_after_s: tuple[float, ...]
    seconds: Mapping[Verdict, tuple[float, ...]]

    def count(self, verdict: Verdict) -> int:
        return sum(number for (_, ended), number in self.counts.items() if ended is verdict)

    def broken_promises(self) -> list[str]:
        """What the acceptance asks and this burst did not show."""
        broken = []
        if not self.count(Verdict.ANSWERED):
            broken.append("no request was answered")
        if self.num_wrong:
            broken.append(f"{self.num_wrong} answers are not those of plain decoding")
        if failed := self.count(Verdict.FAILED):
            reasons = "; ".join(f"{n} x {why}" for why, n in self.failures.items())
            broken.append(f"{failed} requests ended otherwise than promised: {reasons}")
        return broken

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "counts": {
                way.value: {
                    verdict.value: self.counts.get((way, verdict), 0) for verdict in Verdict
                }
                for way in Way
            },
            "wrong_answers": self.num_wrong,
            "failures": dict(self.failures),
            "retry_after_s": _spread(self.retry_after_s),
            "seconds": {
                verdict.value: _spread(self.seconds.get(verdict, ())) for verdict in Verdict
            },
        }


def judge(outcomes: Sequence[Outcome], plain: Mapping[Ids, Ids]) -> Found:
    """`plain` is what plain decoding answers each prompt with."""
    answered = [outcome for outcome in outcomes if outcome.verdict is Verdict.ANSWERED]
    reasons = Counter(o.why for o in outcomes if o.verdict is Verdict.FAILED)
    hints = (outcome.retry_after_s for outcome in outcomes)
    seconds = {
        verdict: tuple(sorted(o.seconds for o in outcomes if o.verdict is verdict))
        for verdict in Verdict
    }
    return Found(
        counts=Counter((outcome.question.way, outcome.verdict) for outcome in outcomes),
        num_wrong=sum(outcome.token_ids != _expected(outcome, plain) for outcome in answered),
        failures=dict(reasons.most_common(_MOST_REASONS)),
        retry_after_s=tuple(sorted(hint for hint in hints if hint is not None)),
        seconds=seconds,
    )


def _expected(outcome: Outcome, plain: Mapping[Ids, Ids]) -> Ids:
    return plain[outcome.question.prompt][: outcome.question.max_tokens]


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {
        "min": round(min(values), 3),
        "median": round(statistics.median(values), 3),
        "max": round(max(values), 3),
    }
