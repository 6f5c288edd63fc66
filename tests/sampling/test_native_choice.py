"""The kernels choose what PyTorch chooses, or leave the row to it; nearly all they decide."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from specdec_core.kernels.build import FLAGS
from specdec_core.loading.loader import make_decoder
from specdec_core.sampling import sampler
from specdec_core.sampling.cpu import (
    UNDECIDED,
    ChoiceKernels,
    build_choice_kernels,
    choice_kernels_for,
    load_choice_kernels,
)
from specdec_core.sampling.sampler import NO_CHOICE, choose
from specdec_core.sampling_params import SampleRow, SamplingParams, SamplingRules
from tests.tiny_models import tiny_model

BUILDS = {"as this machine is": FLAGS, "with short vectors": (*FLAGS, "-mno-avx", "-mno-avx2")}
LARGEST = torch.finfo(torch.float32).max
VOCAB = 49_152

KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "a model's": lambda noise: (3 * noise).bfloat16().float(),
    "peaked": lambda noise: 12 * noise,
    "flat": lambda noise: 0.01 * noise,
    "all equal": torch.zeros_like,
    "few different": lambda noise: noise.round(),
    "with both zeros": lambda noise: noise.round() * torch.where(noise > 0.1, 0.0, -0.0),
    "mostly banned": lambda noise: noise.masked_fill(noise < 1.0, -math.inf),
    "one id": lambda noise: torch.where(noise == noise.amax(-1, True), 0.0, -math.inf),
    "denormal": lambda noise: noise * 1e-42,
    "tiny differences": lambda noise: 1.0 + noise * 1e-6,
    "far from zero": lambda noise: 2.0**23 + noise.round(),
    "huge": lambda noise: noise.clamp(-1, 1) * LARGEST,
    "steep": lambda noise: noise * 1e20,
}

PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 1e-40, 1e-20, 1e-6, 0.06, 0.5, 0.8, 1.0, 1.3, 5.0, 100.0])
    | st.floats(0.0, 100.0),
    top_k=st.sampled_from([0, 0, 0, 1, 2, 5, 40, 63, 700, 2**31 - 1]) | st.integers(0, 200),
    top_p=st.sampled_from([1.0, 1.0, 1 - 2**-53, 0.999999, 0.95, 0.5, 0.25, 1e-9, 5e-324])
    | st.floats(0.0, 1.0, exclude_min=True),
    min_p=st.sampled_from([0.0, 0.0, 0.0, 5e-324, 1e-9, 0.02, 0.5, 1.0]) | st.floats(0.0, 1.0),
    seed=st.integers(0, 2**63 - 1),
)


@pytest.fixture(scope="module", params=BUILDS)
def kernels(request: pytest.FixtureRequest) -> ChoiceKernels:
    if load_choice_kernels() is None:
        pytest.skip("no C compiler")
    return build_choice_kernels(BUILDS[request.param])


def rows_of(params: list[SamplingParams], position: int = 100) -> list[SampleRow]:
    return [SampleRow(SamplingRules(p, 0), position + i) for i, p in enumerate(params)]


def logits_of(kind: str, num_rows: int, vocab_size: int, seed: int) -> Tensor:
    noise = torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(seed))
    return KINDS[kind](noise)


def decided(kernels: ChoiceKernels, logits: Tensor, rows: list[SampleRow]) -> list[int]:
    """What the kernels say, and PyTorch where they leave it to PyTorch."""
    tokens = kernels.choose(logits, rows)
    return [
        choose(logits[i : i + 1].float(), rows[i : i + 1], logits.shape[1])[0]
        if token == UNDECIDED
        else token
        for i, token in enumerate(tokens)
    ]


@settings(max_examples=120)
@given(
    params=st.lists(PARAMS, min_size=1, max_size=6),
    kind=st.sampled_from(list(KINDS)),
    vocab_size=st.sampled_from([1, 2, 15, 16, 17, 63, 64, 65, 129, 1000, 5000]),
    seed=st.integers(0, 2**32),
    position=st.integers(0, 2**20),
)
@example([SamplingParams(top_p=0.5)] * 6, "all equal", 2, 0, 0)
@example([SamplingParams(top_k=1, temperature=5.0)] * 6, "all equal", 5000, 0, 7)
def test_what_the_kernels_decide_pytorch_chooses(
    kernels: ChoiceKernels,
    params: list[SamplingParams],
    kind: str,
    vocab_size: int,
    seed: int,
    position: int,
) -> None:
    logits = logits_of(kind, len(params), vocab_size, seed)
    rows = rows_of(params, position)
    assert decided(kernels, logits, rows) == choose(logits, rows, vocab_size)


@pytest.mark.covering(1)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.8, top_p=0.95),
        SamplingParams(temperature=1.0, top_p=0.9),
        SamplingParams(temperature=0.8),
        SamplingParams(temperature=0.7, top_k=20, top_p=0.8),
        SamplingParams(temperature=1.0, min_p=0.05),
        SamplingParams(temperature=2.0, top_k=1000),
        SamplingParams(temperature=0.6, top_p=0.5, min_p=0.001),
        SamplingParams(temperature=0.0),
    ],
)
def test_rows_like_a_models_are_decided_and_right(
    kernels: ChoiceKernels, params: SamplingParams, seed: int
) -> None:
    rows = rows_of([params] * 64, position=1000 * seed)
    logits = logits_of("a model's", 64, VOCAB, seed)
    logits *= torch.linspace(0.3, 1.5, 64).unsqueeze(1)
    tokens = kernels.choose(logits, rows)
    assert tokens.count(UNDECIDED) <= 2
    expected = choose(logits, rows, VOCAB)
    assert [token for token in tokens if token != UNDECIDED] == [
        expected[i] for i, token in enumerate(tokens) if token != UNDECIDED
    ]


@pytest.mark.parametrize("first_leader", [10, 1500])
def test_top_k_may_end_among_ties_before_or_behind_the_leaders(
    kernels: ChoiceKernels, first_leader: int
) -> None:
    """60 ids lead, ids 700 to 1099 tie behind them, and the first ten of those are kept."""
    logits = torch.zeros(64, 2000)
    logits[:, 700:1100] = 0.5
    logits[:, first_leader : first_leader + 60] = 1.0
    rows = rows_of([SamplingParams(seed=s, top_k=70, temperature=3.0) for s in range(64)])
    tokens = kernels.choose(logits, rows)
    assert tokens == choose(logits, rows, 2000)
    assert any(700 <= token < 710 for token in tokens)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_chosen_from_as_what_they_are_in_float32(
    kernels: ChoiceKernels, dtype: torch.dtype
) -> None:
    params = [SamplingParams(temperature=0.0), SamplingParams(temperature=0.8, top_p=0.95)] * 20
    rows = rows_of(params)
    logits = logits_of("a model's", 40, 4999, 1).to(dtype)
    assert kernels.choose(logits, rows) == kernels.choose(logits.float(), rows)
    assert decided(kernels, logits, rows) == choose(logits.float(), rows, 4999)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_rows_may_lie_apart_upon_each_other_or_scattered(
    kernels: ChoiceKernels, temperature: float
) -> None:
    rows = rows_of([SamplingParams(temperature=temperature, seed=s) for s in range(6)])
    logits = logits_of("a model's", 6, 300, 2)
    expected = choose(logits, rows, 300)
    wide = torch.cat([logits, torch.full((6, 100), 1e9)], dim=1)
    assert kernels.choose(wide[:, :300], rows) == expected
    assert kernels.choose(logits.t().contiguous().t(), rows) == expected
    upon = logits[:1].expand(6, -1)
    assert kernels.choose(upon, rows) == choose(upon, rows, 300)


@pytest.mark.parametrize("num_rows", [1, 2, 7, 64])
def test_a_choice_does_not_depend_on_the_number_of_threads(
    kernels: ChoiceKernels, num_rows: int
) -> None:
    rows = rows_of([SamplingParams(temperature=0.8, top_p=0.9, seed=s) for s in range(num_rows)])
    logits = logits_of("a model's", num_rows, 5000, 3)
    num_threads = torch.get_num_threads()
    try:
        alone = kernels.choose(logits, rows)
        torch.set_num_threads(3)
        assert kernels.choose(logits, rows) == alone
    finally:
        torch.set_num_threads(num_threads)


@pytest.mark.parametrize("value", [math.nan, -math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("place", [0, 17, 63, 64, 250, 298])
def test_one_bad_number_fails_its_row(
    kernels: ChoiceKernels, temperature: float, value: float, place: int
) -> None:
    rows = rows_of([SamplingParams(temperature=temperature, seed=s) for s in range(3)])
    logits = logits_of("a model's", 3, 299, 4)
    healthy = choose(logits, rows, 299)
    logits[1, place] = value
    assert kernels.choose(logits, rows) == [healthy[0], NO_CHOICE, healthy[2]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_zeros_of_both_signs_are_equal(kernels: ChoiceKernels, dtype: torch.dtype) -> None:
    logits = torch.full((1, 5_000), -1.0, dtype=dtype)
    logits[0, [700, 3_000]] = torch.tensor([-0.0, 0.0], dtype=dtype)
    assert kernels.choose(logits, rows_of([SamplingParams(temperature=0.0)])) == [700]


def test_what_is_too_close_to_call_is_left_to_pytorch(kernels: ChoiceKernels) -> None:
    """Two ids whose scores float32 rounds to one; and a cut right between two of equal mass."""
    logits = torch.zeros(16, 500)
    logits[:, [77, 400]] = 2.0**30
    rows = rows_of([SamplingParams(temperature=0.5, seed=s) for s in range(16)])
    assert kernels.choose(logits, rows) == [UNDECIDED] * 16
    halves = torch.zeros(64, 2)
    rows = rows_of([SamplingParams(top_p=0.5, seed=s) for s in range(64)])
    assert set(kernels.choose(halves, rows)) == {0, UNDECIDED}
    assert choose(halves, rows, 2) == [0] * 64


def test_pytorch_decides_what_the_kernels_leave(
    kernels: ChoiceKernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of([SamplingParams(top_p=0.5, seed=s) for s in range(64)])
    monkeypatch.setattr(sampler, "choice_kernels_for", lambda logits: kernels)
    assert choose(torch.zeros(64, 2), rows, 2) == [0] * 64


def test_without_a_compiler_pytorch_chooses(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CC", "/nowhere/cc")
    load_choice_kernels.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            assert load_choice_kernels() is None
        assert choice_kernels_for(torch.zeros(1)) is None
    finally:
        load_choice_kernels.cache_clear()
    assert "/nowhere/cc" in caplog.text


@pytest.mark.parametrize("enforce_eager", [False, True])
def test_a_model_that_is_loaded_brings_the_kernels_unless_they_are_refused(
    enforce_eager: bool,
) -> None:
    if load_choice_kernels() is None:
        pytest.skip("no C compiler")
    load_choice_kernels.cache_clear()
    make_decoder(tiny_model("llama"), enforce_eager=enforce_eager)
    assert (choice_kernels_for(torch.zeros(1)) is None) == enforce_eager
