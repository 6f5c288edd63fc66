"""The costs of the choice are those of the decider that they are told of."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.choice_cost import SETTINGS, Cost, Times, _measure
from specdec_core.sampling import logit_processors, sampler
from specdec_core.sampling.cpu import load_choice_kernels
from specdec_core.sampling_params import SamplingParams


class Bench:
    """Takes 1 s where the kernels choose, and 2 s where PyTorch does."""

    def run_round(self, params: SamplingParams) -> Cost:
        logits = torch.zeros(1, 2)
        kernels = sampler.choice_kernels_for(logits)
        assert logit_processors.choice_kernels_for(logits) is kernels
        took = Times(1.0, 1.0) if kernels else Times(2.0, 2.0)
        return Cost(took, took)


def test_each_decider_is_timed_under_each_setting() -> None:
    if load_choice_kernels() is None:
        pytest.skip("no C compiler")
    bench: Any = Bench()
    medians = _measure(bench, repeats=1)
    assert {
        decider: [own["wall"]["choice_ms"] for own in by_name.values()]
        for decider, by_name in medians.items()
    } == {"kernels": [1e3] * len(SETTINGS), "PyTorch": [2e3] * len(SETTINGS)}
