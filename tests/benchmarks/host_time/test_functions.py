"""Shares of functions in a profile."""

from __future__ import annotations

from benchmarks.host_time.functions import Stats, shares_of

COMMIT = ("/tree/specdec_core/scheduler/results.py", 115, "_commit")
SCORE = ("/tree/benchmarks/host_time/scripted.py", 20, "score")
COPY = ("/lib/python3.11/copy.py", 5, "copy")
APPEND = ("~", 0, "<method 'append' of 'list' objects>")


def test_built_in_functions_count_for_their_callers_and_the_benchmark_for_nobody() -> None:
    stats: Stats = {
        COMMIT: (1, 1, 3.0, 5.0, {}),
        COPY: (1, 1, 2.0, 2.0, {}),
        SCORE: (1, 1, 7.0, 9.0, {}),
        APPEND: (9, 9, 5.0, 5.0, {COMMIT: (4, 4, 3.0, 3.0), SCORE: (5, 5, 2.0, 2.0)}),
    }
    assert shares_of(stats) == {"scheduler/results.py _commit": 0.75, "libraries": 0.25}
