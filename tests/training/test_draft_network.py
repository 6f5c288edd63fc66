"""Drafts begin as what they are made from, and what they cannot be made from is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from specdec_core.errors import InvalidRequestError, ModelNotSupportedError
from specdec_core.training.draft_network import (
    DraftShape,
    Initialisation,
    build_draft,
    principal_part,
    spread_evenly,
)
from tests.tiny_models import tiny_model
from tests.training.texts import save_target

IDS = torch.tensor([[5, 9, 17, 3]])


def test_a_draft_of_all_layers_is_the_target(tmp_path: Path) -> None:
    target = save_target(tmp_path)
    draft = build_draft(target, DraftShape(num_layers=2), seed=0)
    with torch.inference_mode():
        assert torch.equal(draft(IDS).logits, tiny_model("llama")(IDS).logits)


def test_the_named_layers_are_taken(tmp_path: Path) -> None:
    target = save_target(tmp_path, num_hidden_layers=3)
    draft = build_draft(target, DraftShape(from_layers=(2,)), seed=0)
    weight = draft.model.layers[0].mlp.up_proj.weight
    assert torch.equal(weight, target.weight("model.layers.2.mlp.up_proj.weight"))


def test_a_wide_draft_trains_its_layers_and_norm_alone(tmp_path: Path) -> None:
    draft = build_draft(save_target(tmp_path), DraftShape(), seed=0)
    names = {name for name, p in draft.named_parameters() if p.requires_grad}
    assert "model.norm.weight" in names
    assert not [name for name in names if "embed" in name or "lm_head" in name]


def test_a_narrow_draft_has_embeddings_of_its_own_tied_to_its_head(tmp_path: Path) -> None:
    shape = DraftShape(num_layers=3, hidden_size=32)
    draft = build_draft(save_target(tmp_path), shape, seed=0)
    assert draft.lm_head.weight is draft.model.embed_tokens.weight
    assert draft.lm_head.weight.requires_grad
    assert draft(IDS).logits.shape == (1, 4, 97)
    assert draft.config.num_hidden_layers == 3


def test_narrow_embeddings_keep_most_of_what_tells_tokens_apart() -> None:
    generator = torch.Generator().manual_seed(0)
    two_directions = torch.randn(50, 2, generator=generator) @ torch.randn(
        2, 16, generator=generator
    )
    narrow = principal_part(two_directions, 2)
    assert torch.allclose(narrow @ narrow.T, two_directions @ two_directions.T, atol=1e-3)


def test_the_seed_makes_what_no_target_gives(tmp_path: Path) -> None:
    target, shape = save_target(tmp_path), DraftShape(hidden_size=32)
    weights = [build_draft(target, shape, seed).model.layers[0].mlp.up_proj.weight for seed in
               (0, 0, 1)]  # fmt: skip
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_layers_that_are_not_llamas_are_refused_by_name(tmp_path: Path) -> None:
    target = save_target(tmp_path, "qwen3")
    with pytest.raises(ModelNotSupportedError, match=r"q_norm|k_norm"):
        build_draft(target, DraftShape(), seed=0)
    shape = DraftShape(initialise_from=Initialisation.EMBEDDINGS)
    assert build_draft(target, shape, seed=0)(IDS).logits.shape == (1, 4, 97)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (DraftShape(num_layers=3), "only 2 layers"),
        (DraftShape(from_layers=(2,)), "0..1, got 2"),
        (DraftShape(hidden_size=32, initialise_from=Initialisation.LAYERS), "hidden size"),
        (DraftShape(hidden_size=128), "at most the target's 64"),
    ],
)
def test_shapes_that_the_target_does_not_allow(
    tmp_path: Path, shape: DraftShape, message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        build_draft(save_target(tmp_path), shape, seed=0)


@pytest.mark.parametrize(
    "changes",
    [{"num_layers": 0}, {"hidden_size": 33}, {"from_layers": (1, 2)}, {"vocab_size": 0}],
)
def test_shapes_that_nothing_allows(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError):
        DraftShape(**changes)  # type: ignore[arg-type]


def test_layers_are_spread_from_first_to_last() -> None:
    assert spread_evenly(30, 1) == (0,)
    assert spread_evenly(30, 2) == (0, 29)
    assert spread_evenly(30, 4) == (0, 10, 19, 29)
