"""What only a GPU can tell: that passes can be captured, and that replays equal eager passes."""

from __future__ import annotations

import pytest
import torch

from specdec_core.loading.memory import DeviceMemory, peak_bytes
from specdec_core.model import score
from specdec_core.sampling.sampler import choose
from specdec_core.sampling_params import SampleRow, SamplingParams, SamplingRules
from specdec_core.worker.cuda_graphs import capture as captures
from specdec_core.worker.cuda_graphs.recorder import GraphRecorder, Recorder
from specdec_core.worker.model_runner import ModelRunner
from specdec_core.worker.round import propose, round_row
from tests.tiny_models import DECODERS, VOCAB, tiny_decoder

pytestmark = pytest.mark.gpu


def on_gpu(decoder: str, recorder: Recorder | None = None) -> ModelRunner:
    weights = tiny_decoder(decoder).to("cuda")
    return ModelRunner(weights, vocab_size=VOCAB, kv_cache_tokens=4096, recorder=recorder)


@pytest.mark.parametrize("decoder", DECODERS)
def test_captured_passes_have_the_logits_of_eager_ones(decoder: str) -> None:
    models = on_gpu(decoder), on_gpu(decoder, GraphRecorder(torch.device("cuda")))
    slots = [{model.allocate() for model in models}.pop() for _ in range(5)]
    for counts in ((40, 3, 17, 1, 60), (1, 1, 1, 1, 1), (5, 5, 5, 5, 5), (1, 4, 2, 5, 3)) * 3:
        feeds = [(s, range(2, 2 + n), n) for s, n in zip(slots, counts, strict=True)]
        eager, captured = (score(model, feeds) for model in models)
        torch.testing.assert_close(captured, eager, atol=1e-3, rtol=1e-3)
    assert models[1].drafts_in_one_go
    fixed = models[1]._fixed
    assert fixed is not None
    assert fixed.passes.num_recorded > 2


@pytest.mark.parametrize("settings", [{"temperature": 0.0}, {"temperature": 0.9, "top_p": 0.9}, {}])
def test_captured_drafts_propose_what_a_draft_asked_token_by_token_proposes(
    settings: dict[str, float],
) -> None:
    models = on_gpu("fused llama"), on_gpu("fused llama", GraphRecorder(torch.device("cuda")))
    slots = [{model.allocate() for model in models}.pop() for _ in range(5)]
    for model in models:
        score(model, [(slot, range(1, 30 + slot), 0) for slot in slots])
    rules = [SamplingRules(SamplingParams(seed=s, **settings), prompt_len=3) for s in slots]
    for turn, count in enumerate((1, 5, 5, 2, 5)):
        rows = list(zip(slots, rules, strict=True))[:count]
        turns = [round_row(slot, (7, turn), (), 4, rule) for slot, rule in rows]
        by_token, in_one_go = (propose(model, turns) for model in models)
        assert in_one_go == by_token


def test_a_draft_of_k_tokens_waits_for_the_device_once() -> None:
    model = on_gpu("fused llama", GraphRecorder(torch.device("cuda")))
    slot = model.allocate()
    rules = SamplingRules(SamplingParams(temperature=0.0), prompt_len=3)
    turns = [round_row(slot, (7,), (), 4, rules)]
    propose(model, turns)
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with pytest.warns(UserWarning, match="called a synchronizing CUDA operation") as waits:
            propose(model, turns)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(waits) == 1


def test_memory_is_measured() -> None:
    device = torch.device("cuda")
    taken = peak_bytes(lambda: torch.empty(2**26, dtype=torch.uint8, device=device), device)
    assert taken >= 2**26
    memory = DeviceMemory.now(device)
    assert 0 < memory.free <= memory.total


def test_a_capture_that_runs_out_of_memory_ends_nothing() -> None:
    recorder = GraphRecorder(torch.device("cuda"))
    numbers = torch.zeros(3, device="cuda")

    def too_large() -> None:
        numbers.add_(1)
        if torch.cuda.is_current_stream_capturing():
            torch.empty(2**44, dtype=torch.uint8, device="cuda")

    with pytest.raises(torch.OutOfMemoryError):
        recorder.record(too_large, numbers.zero_)
    assert not captures.have_failed()
    recorder.record(lambda: numbers.add_(1), numbers.zero_)()
    assert numbers.tolist() == [2, 2, 2], "the last warm-up and the replay"


def test_graphs_are_captured_again_when_all_are_gone() -> None:
    """Also while something that the first one made is held."""
    recorder = GraphRecorder(torch.device("cuda"))
    numbers, made = torch.zeros(3, device="cuda"), []
    replay = recorder.record(lambda: made.append(numbers + 1), lambda: None)
    replay()
    del replay
    recorder.record(lambda: numbers.add_(1), numbers.zero_)()
    assert numbers.tolist() == [2, 2, 2]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_ties_go_to_the_lowest_id_in_greedy_rows(dtype: torch.dtype) -> None:
    """As on a CPU, however many rows: the first of equals is what PyTorch promises of `max`."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(300, 151_936, generator=generator).to(dtype)
    rows = [SampleRow(SamplingRules(SamplingParams(temperature=0.0), 0), 0)] * len(logits)
    greatest = logits.amax(dim=1, keepdim=True)
    ids = torch.randint(151_936, (300, 9), generator=generator)
    logits.scatter_(1, ids, greatest.expand(-1, 9).contiguous())
    lowest = (logits == greatest).int().argmax(dim=1)
    for count in (300, 40, 8, 1):
        assert choose(logits[:count].cuda(), rows[:count], 151_936) == lowest[:count].tolist()
