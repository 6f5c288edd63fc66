"""Passes of fixed shape against the ragged ones: the same logits, whatever the padding."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from specdec_core.config import DEFAULT_MAX_CHOICES
from specdec_core.layers.attention.paged import BlockAttention
from specdec_core.model import score
from specdec_core.sampling_params import SamplingParams, SamplingRules
from specdec_core.worker.cuda_graphs import device_plan
from specdec_core.worker.cuda_graphs.graph_runner import _OWN_AFTER
from specdec_core.worker.cuda_graphs.recorder import DirectRecorder, Work
from specdec_core.worker.model_runner import ModelRunner
from specdec_core.worker.round import propose, round_row
from tests.models.cuda_graphs.by_hand import BY_HAND
from tests.models.cuda_graphs.models import Twins, fixed, ragged
from tests.models.cuda_graphs.recorders import HostNeededError, JudgingRecorder, ScarceRecorder
from tests.tiny_models import DECODERS, VOCAB


@pytest.fixture(scope="module", params=DECODERS)
def decoder(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_any_rows_of_any_lengths_have_the_ragged_logits(decoder: str) -> None:
    """Proposals, single tokens, catch-ups and prefills, with rollbacks between them."""
    recorder = JudgingRecorder()
    twins = Twins(ragged(decoder), fixed(decoder, recorder))
    rng = twins.rng
    slots = [twins.allocate() for _ in range(11)]
    for turn in range(25):
        used = rng.sample(slots, rng.choice([1, 2, 3, 5, 8, 11]))
        longest = rng.choice([1, 1, 2, 5, 9, 12, 33, 60])
        counts = {}
        for slot in used:
            count = rng.randint(0, longest) if turn % 3 else longest
            counts[slot] = (count, rng.choice([0, min(count, 1), count]))
        twins.check(counts)
        for slot in used:
            if rng.random() < 0.5:
                twins.rollback(slot, rng.randint(0, twins.lens[slot]))
    assert recorder.num_replayed > 15, "most of them were passes of fixed shape"
    assert recorder.num_recorded < recorder.num_replayed


def test_recorded_work_reads_weights_cache_and_buffers_alone() -> None:
    recorder = JudgingRecorder()
    model = fixed("fused llama", recorder)
    slots = [model.allocate() for _ in range(3)]
    score(model, [(slot, range(1, 50 + slot), 0) for slot in slots])
    for _ in range(2):
        score(model, [(slot, (5, 6), 2) for slot in slots])
    network = [*model.module.parameters(), *model.module.buffers()]
    known = {tensor.untyped_storage().data_ptr() for tensor in network}
    unknown = recorder.outside - known
    assert len(unknown) == 3, "the cache, the numbers of the pass and its logits"


@pytest.mark.parametrize("attention", [None, BY_HAND])
def test_a_mask_is_made_where_keys_are_gathered(
    monkeypatch: pytest.MonkeyPatch, attention: BlockAttention | None
) -> None:
    """Attention over blocks needs none: it would be the largest tensor of a pass."""
    made: list[None] = []
    mask = device_plan.causal_mask

    def counted(*args: Any) -> Tensor:
        made.append(None)
        return mask(*args)

    monkeypatch.setattr(device_plan, "causal_mask", counted)
    model = fixed("fused llama", block_attention=attention)
    score(model, [(model.allocate(), (3,), 1)])
    assert len(made) == (attention is None)


def test_logits_stay_the_callers() -> None:
    """The next pass of the shape writes into the same memory."""
    model = fixed("fused llama")
    slot = model.allocate()
    first = score(model, [(slot, (3,), 1)])
    kept = first.clone()
    score(model, [(slot, (7,), 1)])
    assert torch.equal(first, kept)


def test_a_row_may_be_as_long_as_the_model_allows() -> None:
    limits = {"max_model_len": 70, "kv_cache_tokens": 160}
    twins = Twins(ragged("fused llama", **limits), fixed("fused llama", **limits))
    slot = twins.allocate()
    twins.check({slot: (40, 1)})
    for count in (5, 9, 9, 5, 1, 1):
        twins.check({slot: (count, count)})
    assert twins.lens[slot] == 70


def test_padding_touches_no_block_of_a_sequence() -> None:
    """All blocks are taken: whatever padding writes would be seen."""
    limits = {"kv_cache_tokens": 64}
    twins = Twins(ragged("fused llama", **limits), fixed("fused llama", **limits))
    first, second, third = (twins.allocate() for _ in range(3))
    twins.check({first: (15, 1), second: (30, 1), third: (3, 3)})
    for _ in range(4):
        twins.check({first: (1, 1), second: (1, 1), third: (4, 4)})
        for slot in (first, second, third):
            twins.rollback(slot, twins.lens[slot] - 1)


def test_what_fails_in_a_sequence_does_not_spread() -> None:
    """NaN in one row's keys and values: other rows, and later ones in the scratch block, stay."""
    model, clean = fixed("fused llama"), ragged("fused llama")
    sick, slot = model.allocate(), model.allocate()
    other = clean.allocate()
    score(model, [(sick, (1, 2, 3), 0), (slot, (4, 5, 6, 7), 0)])
    score(clean, [(other, (4, 5, 6, 7), 0)])
    for keys, values in model._kv.all_pools:
        keys[:3] = values[:3] = torch.nan
    for _ in range(3):
        found = score(model, [(sick, (1,), 1), (slot, (8, 9, 1), 3)])
        expected = score(clean, [(other, (8, 9, 1), 3)])
        assert found[0].isnan().all()
        torch.testing.assert_close(found[1:], expected, atol=2e-5, rtol=1e-5)


def test_work_that_needs_the_host_is_not_recorded_and_the_model_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class NoCapture:
        def record(self, work: object, clear: object) -> None:
            raise RuntimeError("operation not permitted when stream is capturing")

        def free_bytes(self) -> None:
            return None

    twins = Twins(ragged("fused llama"), fixed("fused llama", NoCapture()))  # type: ignore[arg-type]
    slot = twins.allocate()
    for count in (3, 2):
        twins.check({slot: (count, count)})
    assert "run without recordings" not in caplog.text
    for count in (1, 4, 5):
        twins.check({slot: (count, count)})
    assert caplog.text.count("run without recordings") == 1
    assert "lower gpu_memory_utilization" in caplog.text


@pytest.mark.parametrize("attention", [None, BY_HAND])
def test_a_recorded_shape_stands_in_for_one_that_is_seldom_asked_for(
    attention: BlockAttention | None,
) -> None:
    """To record takes as long as dozens of passes: its own is recorded once it was asked for so
    often. Rows and tokens are padded, and so are logits."""
    recorder = ScarceRecorder(num_recordings=9)
    small = fixed("fused llama", recorder, block_attention=attention)
    twins = Twins(ragged("fused llama"), small)
    slots = [twins.allocate() for _ in range(6)]
    twins.check({slot: (3, 3) for slot in slots})
    assert recorder.num_recorded == 1
    for _ in range(_OWN_AFTER):
        assert recorder.num_recorded == 1
        twins.check({slot: (2, 2) for slot in slots[:2]})
        for slot in slots[:2]:
            twins.rollback(slot, 3)
    assert recorder.num_recorded == 2


class _Logits(TorchDispatchMode):
    """Rows of [N, V] that are made without numbers: memory that stays."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ == "empty" and output.shape[1:] == (VOCAB,):
            self.made.append(len(output))
        return output


def test_memory_of_logits_is_made_at_load_for_as_many_as_one_call_chooses() -> None:
    """Whatever shapes come, and whatever they want."""
    with _Logits() as logits:
        model = fixed("fused llama")
        slots = [model.allocate() for _ in range(40)]
        for rows, count in ((40, 5), (3, 33), (40, 33), (1, 1)):
            score(model, [(slot, (5,) * count, count) for slot in slots[:rows]])
            for slot in slots[:rows]:
                model.rollback(slot, 0)
    assert logits.made == [DEFAULT_MAX_CHOICES]


def test_passes_that_want_more_logits_than_one_call_chooses_are_not_recorded() -> None:
    recorder = JudgingRecorder()
    limits = {"max_choices": 150}
    twins = Twins(ragged("fused llama", **limits), fixed("fused llama", recorder, **limits))
    slots = [twins.allocate() for _ in range(5)]
    twins.check({slot: (33, 33) for slot in slots})
    assert recorder.num_recorded == 0
    twins.check({slot: (33, 1 if slot == slots[0] else 33) for slot in slots})
    assert recorder.num_recorded == 1


def test_recordings_go_with_the_class_table_they_were_made_for() -> None:
    """At once, also steps of drafts, which know the model that knows them."""
    kept: list[weakref.ref[object]] = []

    class Watched(DirectRecorder):
        def record(self, work: Work, clear: Work) -> Work:
            def replay() -> None:
                work()

            kept.append(weakref.ref(replay))
            return replay

    model = fixed("fused llama", Watched())
    slot = model.allocate()
    score(model, [(slot, (1,), 1)])
    rules = SamplingRules(SamplingParams(temperature=0.0), prompt_len=1)
    propose(model, [round_row(slot, (7,), (), 3, rules)])
    assert len(kept) == 2
    gc.collect()
    gc.disable()
    try:
        model.class_table = None
        assert [one() for one in kept] == [None, None]
    finally:
        gc.enable()


NUMBERS = torch.ones(3)


@pytest.mark.parametrize(
    "work",
    [
        lambda: NUMBERS.sum().item(),
        lambda: NUMBERS.tolist(),
        lambda: bool(NUMBERS[0] > 0),
        lambda: NUMBERS[NUMBERS > 0],
        lambda: torch.tensor([1, 2]),
        lambda: NUMBERS.cpu(),
    ],
    ids=["item", "tolist", "bool", "mask", "tensor", "cpu"],
)
def test_the_judge_sees_a_host_that_is_asked(work: Work) -> None:
    with pytest.raises(HostNeededError):
        JudgingRecorder().record(work, lambda: None)


def test_the_judge_sees_memory_and_shapes_that_change() -> None:
    tensors = [torch.ones(3), torch.ones(3)]
    replay = JudgingRecorder().record(lambda: tensors.pop().sum(), lambda: None)
    with pytest.raises(AssertionError, match="something else"):
        replay()


def test_a_model_of_another_class_table_records_anew() -> None:
    recorder = JudgingRecorder()
    model: ModelRunner = fixed("fused llama", recorder)
    slot = model.allocate()
    score(model, [(slot, (1,), 1)])
    score(model, [(slot, (1,), 1)])
    assert recorder.num_recorded == 1
    model.class_table = None
    score(model, [(slot, (1,), 1)])
    assert recorder.num_recorded == 2
    with model.eager():
        score(model, [(slot, (1,), 1)])
    assert recorder.num_replayed == 3
    assert model.vocab_size == VOCAB
