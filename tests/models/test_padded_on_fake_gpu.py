"""The paper's algorithms on a GPU: their cache moves without the host, which only reads ids."""

from __future__ import annotations

import pytest

from specdec_core.algorithms.padded.cache import PaddedRow, stack
from specdec_core.algorithms.padded.eqspec import Eqspec
from specdec_core.algorithms.padded.exspec_padded import ExspecPadded
from specdec_core.algorithms.padded.model import PaddedTransformersModel
from specdec_core.config import SchedulerConfig, SpecMethod
from specdec_core.model import ForwardInput
from specdec_core.request import Request
from specdec_core.sampling_params import SamplingParams
from specdec_core.stopwatch import Stopwatch
from specdec_core.worker.model_runner import ModelRunner
from tests.decoding import fixed_k
from tests.models.exact_table import keep_to_classes
from tests.models.fake_gpu import GPU, Event, on_gpu
from tests.tiny_models import VOCAB

K = 3
PROMPT_LENS = (20, 3, 9)


def padded_on_gpu(waits: list[str], decoder: str, *, is_exact: bool) -> PaddedTransformersModel:
    model: ModelRunner = on_gpu(waits, decoder, max_tokens_per_pass=16)
    if is_exact:
        keep_to_classes(model)
    return PaddedTransformersModel(model)


@pytest.mark.covering(1)
@pytest.mark.parametrize("is_exact", [False, True], ids=["fast", "exact"])
@pytest.mark.parametrize("decoder", ["glm4", "fused qwen3"])
def test_a_pass_over_a_rectangle_never_waits(
    waits: list[str], decoder: str, is_exact: bool
) -> None:
    """Neither a prefill in several passes nor one of rows that are fed unlike many tokens."""
    padded = padded_on_gpu(waits, decoder, is_exact=is_exact)
    kv = padded.new_batch(PROMPT_LENS)
    padded.forward(
        kv, ForwardInput.of([(row, range(2, 1 + n), 0) for row, n in enumerate(PROMPT_LENS)])
    )
    logits = padded.forward(
        kv, ForwardInput.of([(row, range(2, 3 + row), 1 + row) for row in range(3)])
    ).logits
    assert (logits.shape, logits.device) == ((6, VOCAB), GPU)
    assert waits == []


def test_a_cache_that_grows_and_is_realigned_and_stacked_never_waits(waits: list[str]) -> None:
    kv = padded_on_gpu(waits, "fused qwen3", is_exact=False).new_batch(PROMPT_LENS)
    kv.extend({0: 100, 1: 60, 2: 80})
    kv.rollback(1, 50)
    assert kv.realign([0, 2], [100, 80]) > 0
    other = stack([PaddedRow(kv, 1), PaddedRow(kv, 0)], [80, 100])
    assert other.cached_lens == [80, 100]
    assert waits == []


@pytest.mark.thorough
@pytest.mark.covering(1)
@pytest.mark.parametrize("is_exact", [False, True], ids=["fast", "exact"])
@pytest.mark.parametrize("algorithm", [Eqspec, ExspecPadded])
def test_a_round_waits_for_each_drafted_token_and_once_to_verify(
    waits: list[str], algorithm: type[Eqspec] | type[ExspecPadded], is_exact: bool
) -> None:
    """Rows of unlike K, so that every round realigns or stacks."""
    models = [padded_on_gpu(waits, "fused qwen3", is_exact=is_exact) for _ in range(2)]
    speculation = fixed_k(SpecMethod.DRAFT_MODEL, K)
    config = SchedulerConfig(max_group_size=3, window=4, speculation=speculation)
    running = algorithm(*models, config=config)
    params = SamplingParams(temperature=0.0, max_tokens=40)
    for k, length in zip(range(1, K + 1), PROMPT_LENS, strict=True):
        running.add(
            Request(
                request_id=f"{k}",
                prompt_token_ids=tuple(range(2, 2 + length)),
                params=params,
                num_draft_tokens=k,
            )
        )
    for _ in range(2):
        waits.clear()
        events = running.step()
        assert [len(event.token_ids) for event in events] == [2, 3, 4]
        assert waits == ["tolist"] * (K + 1)
    assert running.stats.aligned_bytes > 0


@pytest.mark.parametrize("has_passed", [True, False])
def test_a_stopwatch_makes_nobody_wait_but_who_reads_it(
    waits: list[str], monkeypatch: pytest.MonkeyPatch, has_passed: bool
) -> None:
    """However far the GPU is behind."""
    monkeypatch.setattr(Event, "has_passed", has_passed)
    watch = Stopwatch(GPU)
    for _ in range(1000):
        with watch:
            pass
    assert waits == []
    assert watch.seconds == pytest.approx(1.0)
    assert waits == ["synchronize"]
