"""What drafting costs a round where targets share a draft."""

from __future__ import annotations

import pytest

from specdec_core.speculation.draft_load import DraftLoad


@pytest.mark.parametrize(
    ("crowd", "drafting_s", "pass_s", "exposed_s"),
    [
        (DraftLoad(16, 8, 1.0), 0.02, 0.01, 0.02),
        (DraftLoad(8, 8, 2.0), 0.01, 0.02, 0.01),
        (DraftLoad(8, 8, 2.0), 0.02, 0.01, 0.02 + 0.02 / 6),
        (DraftLoad(16, 8, 2.0), 0.02, 0.01, 0.02 + 0.01 - 0.01),
        (DraftLoad(24, 8, 2.0), 0.02, 0.01, 0.02 + 0.01 - 0.02),
        (DraftLoad(16, 8, 2.0), 0.01, 0.02, 0.0),
    ],
    ids=[
        "one target: nothing is hidden",
        "the other group is drafted beside the pass",
        "a third of the time the draft is busy",
        "always busy, one pass hides a part",
        "two passes hide more",
        "a pass hides all",
    ],
)
def test_a_round_waits_for_its_draft_and_for_those_before_it(
    crowd: DraftLoad, drafting_s: float, pass_s: float, exposed_s: float
) -> None:
    assert crowd.exposed_s(drafting_s, pass_s) == pytest.approx(exposed_s)


@pytest.mark.parametrize(
    ("crowd", "round_s", "share"),
    [
        (DraftLoad(8, 8, 2.0), 0.04, 1.0),
        (DraftLoad(8, 8, 2.0), 0.03, 2 / 3),
        (DraftLoad(4, 8, 2.0), 0.03, 1.0),
        (DraftLoad(4, 8, 4.0), 0.03, 2 / 3),
    ],
    ids=["just enough", "too little", "two half groups share a pass", "four share two"],
)
def test_a_draft_has_time_for_a_share_of_the_rounds(
    crowd: DraftLoad, round_s: float, share: float
) -> None:
    assert crowd.drafted_share(0.02, round_s, plain_s=0.02) == pytest.approx(share)
