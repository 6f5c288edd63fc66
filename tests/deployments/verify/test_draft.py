"""A target without some of its layers, as a draft over shared weights."""

from __future__ import annotations

import pytest
import torch

from deployments.cli.verify.draft import num_left_out, self_draft
from specdec_core.batch_invariance.linear import ExactLinear
from specdec_core.config import Numerics
from specdec_core.errors import InvalidRequestError
from specdec_core.loading.loader import apply_numerics
from specdec_core.model import score
from specdec_core.worker.model_runner import ModelRunner
from tests.tiny_models import DECODERS, FUSED, VOCAB, tiny_decoder

IDS = (5, 9, 2, 31, 8)


def adapted(decoder: str, num_layers: int = 4) -> ModelRunner:
    weights = tiny_decoder(decoder, num_hidden_layers=num_layers)
    return ModelRunner(weights, vocab_size=VOCAB, kv_cache_tokens=1024)


def logits(model: ModelRunner) -> torch.Tensor:
    slot = model.allocate()
    scored = score(model, [(slot, IDS, len(IDS))])
    model.free(slot)
    return scored


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_draft_leaves_its_target_alone(decoder: str) -> None:
    target = adapted(decoder)
    before = logits(target)
    draft = self_draft(target, 1)
    guessed = logits(draft)
    assert torch.equal(logits(target), before)
    assert not torch.equal(guessed, before)
    body = draft.module if decoder in FUSED else draft.module.model
    assert draft.module.config.num_hidden_layers == len(body.layers) == 3
    shared = {id(parameter) for parameter in target.module.parameters()}
    assert {id(parameter) for parameter in draft.module.parameters()} < shared


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_draft_with_all_layers_is_the_target(decoder: str) -> None:
    target = adapted(decoder)
    assert torch.equal(logits(self_draft(target, 0)), logits(target))


def test_layers_are_left_out_evenly() -> None:
    target = adapted("llama", num_layers=6)
    kept = self_draft(target, 2).module.model.layers
    places = [
        next(i for i, layer in enumerate(target.module.model.layers) if _shares(layer, twin))
        for twin in kept
    ]
    assert places == [0, 1, 3, 5]
    assert [layer.self_attn.layer_idx for layer in kept] == [0, 1, 2, 3]
    assert [layer.self_attn.layer_idx for layer in target.module.model.layers] == list(range(6))


def _shares(layer: torch.nn.Module, twin: torch.nn.Module) -> bool:
    return {id(p) for p in layer.parameters()} == {id(p) for p in twin.parameters()}


def test_the_draft_of_an_exact_target_is_fast() -> None:
    target = adapted("llama")
    apply_numerics(target, Numerics.EXACT)
    draft = self_draft(target, 1)
    assert draft.numerics is Numerics.FAST
    assert not any(isinstance(module, ExactLinear) for module in draft.module.modules())
    assert any(isinstance(module, ExactLinear) for module in target.module.modules())


@pytest.mark.parametrize(
    ("name", "count"), [("self", 0), ("self:0", 0), ("self:3", 3), ("selfish", None), ("a/b", None)]
)
def test_a_name_says_how_many_layers_are_left_out(name: str, count: int | None) -> None:
    assert num_left_out(name) == count


@pytest.mark.parametrize("name", ["self:x", "self:-1", "self:1.5"])
def test_what_is_no_number_of_layers_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="number of layers"):
        num_left_out(name)


def test_one_layer_must_stay() -> None:
    with pytest.raises(InvalidRequestError, match="4 layers"):
        self_draft(adapted("llama"), 4)
