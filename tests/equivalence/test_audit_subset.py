"""A subset of the audit in which every two choices meet: tiny models, some seconds.

The whole matrix is `make audit`, on the demo model.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from deployments.cli.verify.audit import Audit, CellResult
from deployments.cli.verify.cells import ALGORITHMS, PLAIN, Cell, Point, Task
from deployments.cli.verify.draft import self_draft
from specdec_core.config import (
    KPolicyName,
    NgramConfig,
    Numerics,
    SchedulerConfig,
    SpecMethod,
    SpeculationConfig,
)
from specdec_core.loading.loader import apply_numerics
from specdec_core.request import Request
from specdec_core.sampling_params import SamplingParams
from specdec_core.worker.model_runner import ModelRunner
from tests.covering import covering
from tests.equivalence.pairwise import covering_rows
from tests.tiny_models import ARCHITECTURES, VOCAB, tiny_model

STOP_IDS = frozenset({2, 11})
NUM_PROMPTS = 10
SAMPLING: dict[str, dict[str, Any]] = {
    "plain": {},
    "filtered": {"top_p": 0.9, "top_k": 30, "min_p": 0.01},
    "ruled": {
        "presence_penalty": 0.2,
        "frequency_penalty": 0.05,
        "repetition_penalty": 1.02,
        "logit_bias": ((7, 4.0), (8, 4.0), (9, -2.0)),
        "min_tokens": 5,
        "bad_words": ((4,), (20, 21)),
    },
}
FACTORS: dict[str, Any] = {
    "architecture": sorted(ARCHITECTURES),
    "algorithm": tuple(name for name in ALGORITHMS if name != PLAIN),
    "method": (SpecMethod.NGRAM, SpecMethod.DRAFT_MODEL, SpecMethod.HYBRID),
    "k": (1, 4, 15),
    "batch_size": (1, 3, 8),
    "sampling": tuple(SAMPLING),
    "temperature": (0.0, 0.8),
    "dtype": (torch.float32, torch.bfloat16),
    "numerics": (Numerics.EXACT, Numerics.FAST),
}
PLAIN_FACTORS = {
    **{name: FACTORS[name] for name in ("architecture", "sampling", "temperature")},
    **{name: FACTORS[name] for name in ("dtype", "numerics")},
    "batch_size": (3, 8),
}
"""Plain decoding in batches, against itself alone: who drafts, and how much, does not matter."""
ROWS = covering_rows(FACTORS)
PLAIN_ROWS = [
    {**row, "algorithm": PLAIN, "method": SpecMethod.NONE, "k": 0}
    for row in covering_rows(PLAIN_FACTORS)
]
KEPT = [*(ROWS[i] for i in covering(ROWS, 1)), *(PLAIN_ROWS[i] for i in covering(PLAIN_ROWS, 1))]
CASES = [
    row if row in KEPT else pytest.param(row, marks=pytest.mark.nightly)
    for row in [*ROWS, *PLAIN_ROWS]
]
"""In every two of the nightly ones two values meet; `make test` has every value."""


def row_id(row: dict[str, Any]) -> str:
    return "-".join(str(value).removeprefix("torch.") for value in row.values())


@cache
def models(
    architecture: str, dtype: torch.dtype, numerics: Numerics
) -> tuple[ModelRunner, ModelRunner]:
    """A target in the numerics that are asked for, and a draft that is often wrong."""
    weights = tiny_model(architecture).to(dtype)
    target = ModelRunner(weights, vocab_size=VOCAB, kv_cache_tokens=8192)
    apply_numerics(target, numerics)
    return target, self_draft(target, 1)


def make_request(sampling: str, index: int, temperature: float) -> Request:
    """Ragged prompts with end ids inside, ragged budgets, log-probabilities with every token."""
    rng = random.Random(index)
    length = rng.choice([1, 2, 17, 17, 40, 75])
    params = SamplingParams(
        temperature=temperature, seed=index, max_tokens=8 + index, num_logprobs=2
    )
    return Request(
        request_id=str(index),
        prompt_token_ids=tuple(rng.choice([0, 2, *range(3, 40)]) for _ in range(length)),
        params=replace(params, **SAMPLING[sampling]),
        end_token_ids=STOP_IDS,
    )


def make_config(point: Point, num_requests: int) -> SchedulerConfig:
    return SchedulerConfig(
        max_group_size=point.batch_size,
        window=3 * point.batch_size,
        max_queued=num_requests,
        prefill_chunk=16,
        check_invariants=True,
        speculation=SpeculationConfig(
            method=point.method,
            num_draft_tokens=point.num_draft_tokens,
            ngram=NgramConfig(lookup_min=1),
            k_policy=KPolicyName.FIXED,
        ),
    )


def run(row: dict[str, Any]) -> CellResult:
    target, draft = models(row["architecture"], row["dtype"], row["numerics"])
    audit = Audit(
        target=target,
        draft=draft,
        numerics=target.numerics,
        make_request=lambda index, t: make_request(row["sampling"], index, t),
        make_config=make_config,
        report=lambda name, num_finished: None,
    )
    point = Point(row["method"], row["k"], row["batch_size"], row["temperature"])
    return audit.run(Task(Cell(row["algorithm"], point), tuple(range(NUM_PROMPTS))))


def test_the_subset_has_at_least_sixteen_cells() -> None:
    assert len(ROWS) >= 16


@pytest.mark.parametrize("row", CASES, ids=row_id)
def test_the_cell_holds_the_promise(row: dict[str, Any]) -> None:
    result = run(row)
    assert result.failures == []
    assert result.numerics is row["numerics"]
    if row["numerics"] is Numerics.EXACT:
        assert result.num_equal == NUM_PROMPTS
