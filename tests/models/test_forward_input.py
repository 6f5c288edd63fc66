"""One call of a model is plain integers; taps bring the inputs of layers back beside the logits."""

from __future__ import annotations

import pickle
import random
from array import array
from typing import Any

import pytest
import torch
from torch import Tensor

from specdec_core.algorithms.padded.model import PaddedTransformersModel
from specdec_core.errors import ModelNotSupportedError
from specdec_core.kernels.ops import load_kernels
from specdec_core.model import ForwardInput
from specdec_core.models.llama import LlamaModel
from specdec_core.worker.cuda_graphs.recorder import DirectRecorder
from specdec_core.worker.model_runner import ModelRunner
from tests.models.cuda_graphs.by_hand import BY_HAND
from tests.models.test_native_kernels import WIDE
from tests.tiny_models import DECODERS, VOCAB, architecture_of, tiny_decoder, tiny_model

LENGTHS = (3, 40, 1, 17, 40)
"""Short and long rows, so that attention takes them in several segments and out of order."""


def runner(decoder: str = "fused llama", **options: Any) -> ModelRunner:
    return ModelRunner(tiny_decoder(decoder), vocab_size=VOCAB, kv_cache_tokens=1024, **options)


def prompts(seed: int = 0) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(VOCAB) for _ in range(length)] for length in LENGTHS]


def whole(model: ModelRunner, taps: tuple[int, ...] = ()) -> ForwardInput:
    """Every prompt in one row, with a logit for its last token."""
    return ForwardInput.of(((model.allocate(), ids, 1) for ids in prompts()), taps)


def hidden_states(decoder: str, layer: int) -> Tensor:
    """Of every prompt, one after another, as transformers computes them alone."""
    model = tiny_model(architecture_of(decoder))
    with torch.no_grad():
        return torch.cat(
            [
                model(torch.tensor([ids]), output_hidden_states=True).hidden_states[layer][0]
                for ids in prompts()
            ]
        )


def test_its_rows_are_those_that_it_was_made_of() -> None:
    rows = [(7, (1, 2, 3), 2), (3, (), 0), (9, (4,), 1)]
    batch = ForwardInput.of(rows)
    columns = [[7, 3, 9], [3, 0, 1], [2, 0, 1], [1, 2, 3, 4], [], []]
    assert [list(column) for column in batch] == columns
    assert [(slot, tuple(ids), count) for slot, ids, count in batch.rows()] == rows
    assert not any(ForwardInput.of([]))


@pytest.mark.parametrize("decoder", ["llama", "fused llama"])
def test_it_can_be_sent_as_integers(decoder: str) -> None:
    """As to the ranks of a replica: pickled, or in one list of numbers behind the columns'
    lengths."""
    here, there = runner(decoder), runner(decoder)
    batch = whole(here, taps=(1, 0))
    numbers = array("q", [n for column in batch for n in (len(column), *column)]).tobytes()
    received, columns = array("q", numbers).tolist(), []
    while received:
        end = 1 + received[0]
        columns.append(tuple(received[1:end]))
        del received[:end]
    for _ in LENGTHS:
        there.allocate()
    expected = here.forward(pickle.loads(pickle.dumps(batch)))
    found = there.forward(ForwardInput(*columns))
    assert torch.equal(found.logits, expected.logits)
    assert all(map(torch.equal, found.features, expected.features))


@pytest.mark.parametrize(
    "options",
    [{}, {"max_tokens_per_pass": 25}, {"recorder": DirectRecorder()}, {"block_attention": BY_HAND}],
    ids=["one pass", "several passes", "fixed shapes", "blocks read in place"],
)
@pytest.mark.parametrize("decoder", DECODERS)
def test_a_tap_is_the_input_of_its_layer(decoder: str, options: dict[str, Any]) -> None:
    model = runner(decoder, **options)
    output = model.forward(whole(model, taps=(1, 0)))
    assert len(output.features) == 2
    for layer, features in zip((1, 0), output.features, strict=True):
        assert features.shape == (sum(LENGTHS), 64)
        torch.testing.assert_close(features, hidden_states(decoder, layer), atol=1e-5, rtol=1e-4)
    untapped = runner(decoder, **options)
    expected = untapped.forward(whole(untapped))
    torch.testing.assert_close(output.logits, expected.logits, atol=2e-5, rtol=1e-4)
    assert expected.features == ()


def test_tokens_of_a_verification_are_tapped_too() -> None:
    """Few tokens of a row would run in a fixed shape, which has no features to return."""
    model = runner(recorder=DirectRecorder())
    slots = [model.allocate() for _ in LENGTHS]
    rows = list(zip(slots, prompts(), strict=True))
    model.forward(ForwardInput.of((slot, ids[:-1], 0) for slot, ids in rows))
    (features,) = model.forward(ForwardInput.of(((s, i[-1:], 1) for s, i in rows), (1,))).features
    ends = torch.tensor(LENGTHS).cumsum(0) - 1
    expected = hidden_states("llama", 1)[ends]
    torch.testing.assert_close(features, expected, atol=1e-5, rtol=1e-4)


def test_the_kernels_of_a_cpu_run_layer_by_layer_for_a_tap() -> None:
    kernels = load_kernels()
    if kernels is None:
        pytest.skip("no C compiler")
    decoder = LlamaModel(tiny_model("llama", **WIDE).bfloat16(), kernels)
    decoder.use_native_linears()
    model = ModelRunner(decoder, vocab_size=VOCAB, kv_cache_tokens=1024)
    expected, tapped = model.forward(whole(model)), model.forward(whole(model, taps=(0, 1)))
    assert torch.equal(tapped.logits, expected.logits)
    ids = torch.tensor([token for prompt in prompts() for token in prompt])
    assert torch.equal(tapped.features[0], decoder.embedding(ids))
    assert not torch.equal(tapped.features[0], tapped.features[1])


def test_a_call_without_tokens_has_features_without_rows() -> None:
    model = runner()
    output = model.forward(ForwardInput.of([], taps=(0, 1)))
    assert output.logits.shape == (0, VOCAB)
    assert [features.shape for features in output.features] == [(0, 64)] * 2


def test_a_layer_that_is_not_there_cannot_be_tapped() -> None:
    model = runner()
    with pytest.raises(AssertionError):
        model.forward(whole(model, taps=(2,)))


def test_a_left_padded_batch_refuses_taps() -> None:
    padded = PaddedTransformersModel(runner())
    with pytest.raises(ModelNotSupportedError, match="left-padded"):
        padded.forward(padded.new_batch([3]), ForwardInput.of([(0, (1, 2, 3), 1)], taps=(0,)))
