"""A recorded draft proposes the same however its passes are run."""

from __future__ import annotations

import pytest

from benchmarks.paper.recorded_draft import RecordedDraft
from benchmarks.synthetic import record, synthetic_engine
from specdec_core import SamplingParams
from tests.models.cuda_graphs.models import fixed, ragged


@pytest.mark.parametrize("k", [1, 4])
def test_a_recorded_draft_proposes_the_same_in_one_go(k: int) -> None:
    target = ragged("fused llama")
    prompts = [(number, 1, 2, 3) for number in range(5)]
    recording = record(target, prompts, SamplingParams(temperature=0.0, max_tokens=30))
    drafted = []
    for draft in (ragged("fused llama"), fixed("fused llama")):
        book = recording.book(target, 0.7)
        assert RecordedDraft(draft, book).drafts_in_one_go == draft.drafts_in_one_go
        engine = synthetic_engine(target, draft, book, batch=3, num_draft_tokens=k)
        events = list(engine.generate(recording.requests(5)))
        assert sum(len(event.token_ids) for event in events) == 150
        drafted.append((engine.stats.num_drafted, engine.stats.num_accepted))
    assert drafted[0] == drafted[1]
