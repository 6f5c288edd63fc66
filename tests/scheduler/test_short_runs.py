"""The controller in runs of 48 tokens, through the whole pool: near the best fixed K, never slow.

Costs are those measured of the demo model on two cores (benchmarks/results/no_slowdown.json): what
is to be learnt is learnt in some dozens of passes, while the first sequences end already.
"""

from __future__ import annotations

from statistics import mean, median

import pytest

from specdec_core.config import KPolicyName, SchedulerConfig, SpecMethod, SpeculationConfig
from tests.scheduler.modelled.world import Costs, World

MAX_K = 4
NUM_TURNS = 3
SEEDS = (3, 4, 5)
"""One run of two sequences is luck."""
DEMO = Costs(
    verify_s=lambda num_sequences, num_rows: 0.015 + 0.00025 * num_rows + 0.00035 * num_sequences,
    host_s=lambda num_sequences: 0.0004 + 0.00003 * num_sequences,
    noise=0.05,
)


def tokens_per_second(batch: int, acceptance: float, k: int, k_policy: KPolicyName) -> float:
    """Return the mean over some worlds of the median of some turns behind a first one."""
    speculation = SpeculationConfig(method=SpecMethod.NGRAM, num_draft_tokens=k, k_policy=k_policy)
    config = SchedulerConfig(max_group_size=batch, window=batch, speculation=speculation)
    worlds = [World(config, DEMO, acceptance, seed=seed) for seed in SEEDS]
    speeds = []
    for world in worlds:
        runs = [world.run(batch, 48, max(batch, 2)) for _ in range(NUM_TURNS + 1)]
        speeds.append(median(run.tokens_per_second for run in runs[1:]))
    return mean(speeds)


@pytest.mark.covering(1)
@pytest.mark.parametrize("acceptance", [0.5, 0.1, 0.9])
@pytest.mark.parametrize(
    "batch", [1, 2, 4, 8, *(pytest.param(n, marks=pytest.mark.nightly) for n in (16, 32, 64))]
)
def test_it_is_near_the_best_fixed_k_from_the_second_run_on(batch: int, acceptance: float) -> None:
    plain, *fixed = (
        tokens_per_second(batch, acceptance, k, KPolicyName.FIXED) for k in (0, 1, 2, MAX_K)
    )
    reached = tokens_per_second(batch, acceptance, MAX_K, KPolicyName.GOODPUT)
    assert reached >= 0.95 * max(plain, *fixed)
    assert reached >= 0.97 * plain
