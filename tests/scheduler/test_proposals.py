"""What prompt lookup has found, and when it is left out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from specdec_core.config import NgramConfig, SpecMethod, SpeculationConfig
from specdec_core.scheduler import FixedPolicy
from specdec_core.scheduler.proposals import Proposer
from specdec_core.scheduler.sequence import KVReservation, Sequence
from specdec_core.speculation.k_policy import Terms
from specdec_core.speculation.ngram import estimates
from tests.scheduler.cell import request


class _ByKind(FixedPolicy):
    """Goes by kinds for up to four sequences."""

    def terms(self, source: str, num_live: int) -> Terms:
        assert source == "ngram"
        return super().terms(source, num_live)._replace(least_chance=None if num_live <= 4 else 0.3)


@pytest.mark.parametrize(
    ("prompt", "num_live", "found", "match_len"),
    [
        ((7, 5, 9, 8, 5), 4, (9, 8, 5), 1),
        ((7, 5, 9, 8, 5), 5, (), 0),
        ((7, 5, 9, 8, 7, 5), 5, (9, 8, 7), 0),
        ((7, 5, 9, 8, 7, 5), 4, (9, 8, 7), 2),
    ],
    ids=["one agrees, few live", "one agrees, many live", "two agree, many live", "two, few"],
)
def test_what_follows_one_equal_token_is_left_out_where_many_live(
    prompt: tuple[int, ...], num_live: int, found: tuple[int, ...], match_len: int
) -> None:
    lookup = NgramConfig(lookup_max=8, lookup_min=1)
    speculation = SpeculationConfig(method=SpecMethod.NGRAM, num_draft_tokens=3, ngram=lookup)
    proposer = Proposer(speculation, _ByKind(3), 64)
    sequence: Any = Sequence(0, request("a", prompt, 20), 0.0)
    sequence.target = KVReservation("target")
    target: Any = SimpleNamespace(sequences=range(num_live))
    proposer.begin_rounds([sequence], {"target": target}, 1.0)
    assert sequence.round.proposal.tokens == found
    told = estimates(match_len, 3, is_drawn=True) if match_len else ((), ())
    assert sequence.round.local[1:] == told
