"""What prompt lookup has found, and when it is left out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from specdec_core.config import NgramConfig, SpecMethod, SpeculationConfig
from specdec_core.scheduler import FixedPolicy
from specdec_core.scheduler.proposals import Proposer
from specdec_core.scheduler.sequence import KVReservation, Sequence
from tests.pool.cell import request


class _ByAgreement(FixedPolicy):
    """Goes by agreement for up to four sequences."""

    def goes_by_agreement(self, num_live: int) -> bool:
        return num_live <= 4


@pytest.mark.parametrize(
    ("prompt", "num_live", "found", "num_agreed"),
    [
        ((7, 5, 9, 8, 5), 4, (9, 8, 5), 1),
        ((7, 5, 9, 8, 5), 5, (), 0),
        ((7, 5, 9, 8, 7, 5), 5, (9, 8, 7), 0),
        ((7, 5, 9, 8, 7, 5), 4, (9, 8, 7), 2),
    ],
    ids=["one agrees, few live", "one agrees, many live", "two agree, many live", "two, few"],
)
def test_what_follows_one_equal_token_is_left_out_where_many_live(
    prompt: tuple[int, ...], num_live: int, found: tuple[int, ...], num_agreed: int
) -> None:
    lookup = NgramConfig(lookup_max=8, lookup_min=1)
    speculation = SpeculationConfig(method=SpecMethod.NGRAM, num_draft_tokens=3, ngram=lookup)
    proposer = Proposer(speculation, _ByAgreement(3), 64)
    sequence: Any = Sequence(0, request("a", prompt, 20), 0.0)
    sequence.target = KVReservation("target")
    target: Any = SimpleNamespace(sequences=range(num_live))
    proposer.begin_rounds([sequence], {"target": target})
    assert proposer.proposal(sequence) == found
    kinds = tuple(range(num_agreed, num_agreed + 3)) if num_agreed else ()
    assert sequence.round.local.kinds == kinds
