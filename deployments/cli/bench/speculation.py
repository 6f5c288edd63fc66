"""Speculation during a run, by the answers' own counts or by the server's /metrics."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

_PREFIXES = ("specdec_", "vllm:")
"""Prefixes of the counters that are read, ours first. With `--metrics-compat vllm` a page has
both."""
_SAMPLE = re.compile(
    r"(?P<prefix>specdec_|vllm:)spec_decode_(?P<name>\w+)_total"
    r"(?:\{(?P<labels>.*)\})?\s+(?P<value>[^\s]+)"
)
_POSITION = re.compile(r'position="(\d+)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecCounts:
    """Totals of some requests, or of a server since its start."""

    num_drafts: int = 0
    "Proposals that the target verified."
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    accepted_per_position: tuple[int, ...] = ()
    """Index j: how often drafted token j was accepted."""

    def __add__(self, other: SpecCounts) -> SpecCounts:
        return self._combined(other, 1)

    def __sub__(self, earlier: SpecCounts) -> SpecCounts:
        return self._combined(earlier, -1)

    def _combined(self, other: SpecCounts, sign: int) -> SpecCounts:
        positions = zip_longest(
            self.accepted_per_position, other.accepted_per_position, fillvalue=0
        )
        return SpecCounts(
            num_drafts=self.num_drafts + sign * other.num_drafts,
            num_draft_tokens=self.num_draft_tokens + sign * other.num_draft_tokens,
            num_accepted_tokens=self.num_accepted_tokens + sign * other.num_accepted_tokens,
            accepted_per_position=tuple(mine + sign * theirs for mine, theirs in positions),
        )

    @property
    def acceptance_rate(self) -> float:
        """Accepted tokens per drafted token, the next token not counted."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else 0.0

    @property
    def acceptance_length(self) -> float:
        """Tokens committed per proposal, the next token included."""
        return 1.0 + self.num_accepted_tokens / self.num_drafts if self.num_drafts else 0.0

    def figures(self) -> dict[str, Any]:
        """Return the figures by vLLM's names. Empty if nothing was drafted.

        The acceptance rate is in percent. The rates per position are shares of the drafts.
        """
        if not self.num_draft_tokens:
            return {}
        drafts = max(self.num_drafts, 1)
        return {
            "spec_decode_acceptance_rate": 100 * self.acceptance_rate,
            "spec_decode_acceptance_length": self.acceptance_length,
            "spec_decode_num_drafts": self.num_drafts,
            "spec_decode_draft_tokens": self.num_draft_tokens,
            "spec_decode_accepted_tokens": self.num_accepted_tokens,
            "spec_decode_per_position_acceptance_rates": [
                accepted / drafts for accepted in self.accepted_per_position
            ],
        }


def counts_of_answer(payload: Mapping[str, Any]) -> SpecCounts:
    """Return the counts of an answer's `metrics.speculative_decoding`."""
    return SpecCounts(
        num_drafts=payload["num_spec_steps"],
        num_draft_tokens=payload["num_draft_tokens"],
        num_accepted_tokens=payload["num_accepted_draft_tokens"],
        accepted_per_position=_per_position(payload["acceptance_histogram"]),
    )


def _per_position(histogram: Sequence[int]) -> tuple[int, ...]:
    """Return the number of times that token j was accepted, from the number of rounds that accepted
    j tokens."""
    return tuple(sum(histogram[j:]) for j in range(1, len(histogram)))


def counts_of_page(page: str) -> SpecCounts | None:
    """Return a server's totals from its /metrics, over all labels. None if the page has none."""
    totals: dict[str, Counter[str]] = {prefix: Counter() for prefix in _PREFIXES}
    for line in page.splitlines():
        if found := _SAMPLE.match(line):
            place = _POSITION.search(found["labels"] or "")
            key = f"{found['name']}{place[1] if place else ''}"
            totals[found["prefix"]][key] += int(float(found["value"]))
    counts = next((totals[prefix] for prefix in _PREFIXES if totals[prefix]), None)
    return None if counts is None else _from_counters(counts)


def _from_counters(counts: Counter[str]) -> SpecCounts:
    by_position = "num_accepted_tokens_per_pos"
    places = [int(key.removeprefix(by_position)) for key in counts if key.startswith(by_position)]
    return SpecCounts(
        num_drafts=counts["num_drafts"],
        num_draft_tokens=counts["num_draft_tokens"],
        num_accepted_tokens=counts["num_accepted_tokens"],
        accepted_per_position=tuple(
            counts[f"{by_position}{place}"] for place in range(max(places, default=-1) + 1)
        ),
    )
