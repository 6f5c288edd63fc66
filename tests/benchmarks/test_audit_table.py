"""docs/audit.md says what the results say, and whether anything ever differed."""

from __future__ import annotations

from typing import Any

from benchmarks.audit_table import DOCUMENT, document, read_results


def row(cell: str, **fields: Any) -> dict[str, Any]:
    settings = {"dtype": "bfloat16", "max_tokens": 128, "numerics": "exact", "prompts": [1]}
    settings |= {key: fields.pop(key) for key in [*fields] if key in settings}
    counts = {"num_requests": 4, "num_equal": 4, "num_accepted": 6, "num_drafted": 9}
    shape = {"batch_size": 4, "num_draft_tokens": 8, "temperature": 0.8, "method": "ngram"}
    known = {"algorithm": "exspec", "num_proposed_rounds": 3, "mean_acceptance_length": 3.0}
    base = {"cell": cell, "commit": "abc", "settings": settings}
    return base | counts | shape | known | fields


def test_the_document_is_that_of_the_results() -> None:
    assert DOCUMENT.read_text() == document(read_results())


def test_every_result_is_equal_and_drafts_were_accepted() -> None:
    """The promise, as far as it was measured; fast numerics promise less."""
    exact = [r for r in read_results() if r["settings"]["numerics"] == "exact"]
    assert exact
    for result in exact:
        assert result["num_equal"] == result["num_requests"], result["cell"]
        assert not result["failures"]
        if result.get("num_drafted"):
            assert result["num_accepted"] > 0


def test_cells_are_added_up_and_those_that_are_missing_are_named() -> None:
    text = document([row("a"), row("b", algorithm="eqspec", num_equal=3), row("c", batch_size=8)])
    assert "11 of 12 outputs are id for id" in text
    assert "| exspec | ngram | 2 | 8 of 8 | 12 of 18 | 3.000 |" in text
    assert "| ngram, T = 0.8, K = 8 | 7 of 8 | 4 of 4 |" in text
    assert "| ngram, T = 0, K = 8 | not run | not run |" in text


def test_fast_stands_beside_exact_where_both_decoded_the_same_prompts() -> None:
    exact, other = row("a"), row("a", prompts=[2])
    fast = row("a", numerics="fast", num_equal=1, mean_acceptance_length=2.0)
    text = document([exact, other, fast])
    assert "| bfloat16 a | 4 of 4 | 1 of 4 | 3.000 | 3.000 | 1.500 |" in text
    assert text.count("| bfloat16 a |") == 1
    assert "8 of 8 outputs" in text
