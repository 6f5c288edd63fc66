"""The loss against definitions that are worked out over the whole vocabulary."""

from __future__ import annotations

import pytest
import torch

from specdec_core.training.loss import Loss, draft_loss, overlap, teach

N, V = 5, 11


def _logits(seed: int) -> torch.Tensor:
    return torch.randn(N, V, generator=torch.Generator().manual_seed(seed)) * 2


def _top(logits: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    top = logits.log_softmax(-1).topk(count, dim=-1)
    return top.indices, top.values


def test_with_every_id_known_it_is_the_kl_divergence() -> None:
    target, draft = _logits(0), _logits(1)
    expected = torch.nn.functional.kl_div(
        draft.log_softmax(-1), target.softmax(-1), reduction="batchmean"
    )
    loss = draft_loss(Loss.KL, draft, teach(*_top(target, V), None))
    assert loss.item() == pytest.approx(expected.item(), abs=1e-4)


def test_the_rest_counts_as_one_mass() -> None:
    target, draft = _logits(0), _logits(1)
    ids, _ = _top(target, 3)

    def lumped(logits: torch.Tensor) -> torch.Tensor:
        p = logits.softmax(-1).gather(1, ids)
        return torch.cat([p, 1 - p.sum(-1, keepdim=True)], dim=-1)

    p, q = lumped(target), lumped(draft)
    expected = (p * (p / q).log()).sum(-1).mean()
    loss = draft_loss(Loss.KL, draft, teach(*_top(target, 3), None))
    assert loss.item() == pytest.approx(expected.item(), abs=1e-4)


def test_a_draft_that_equals_its_target_loses_nothing() -> None:
    target = _logits(0)
    teacher = teach(*_top(target, 4), None)
    assert draft_loss(Loss.KL, target, teacher).item() == pytest.approx(0, abs=1e-5)


def test_ids_without_a_column_teach_nothing() -> None:
    """As if the target had never thought of them."""
    target, draft = _logits(0), _logits(1)
    listed = torch.tensor([0, 2, 3, 7, 9])
    column_V = torch.full((V,), -1)
    column_V[listed] = torch.arange(len(listed))
    loss = draft_loss(Loss.KL, draft[:, listed], teach(*_top(target, V), column_V))
    expected = torch.nn.functional.kl_div(
        draft[:, listed].log_softmax(-1), target[:, listed].softmax(-1), reduction="batchmean"
    )
    assert loss.item() == pytest.approx(expected.item(), abs=1e-4)


def test_hard_labels_are_the_targets_choices() -> None:
    target, draft = _logits(0), _logits(1)
    expected = torch.nn.functional.cross_entropy(draft, target.argmax(-1))
    loss = draft_loss(Loss.HARD, draft, teach(*_top(target, 2), None))
    assert loss.item() == pytest.approx(expected.item())


def test_a_hard_label_without_a_column_is_left_out() -> None:
    target, draft = _logits(0), _logits(1)
    choices = target.argmax(-1)
    missing = choices[0]
    listed = torch.tensor([i for i in range(V) if i != missing])
    column_V = torch.full((V,), -1)
    column_V[listed] = torch.arange(len(listed))
    counts = choices != missing
    expected = torch.nn.functional.cross_entropy(
        draft[:, listed][counts], column_V[choices[counts]]
    )
    loss = draft_loss(Loss.HARD, draft[:, listed], teach(*_top(target, 2), column_V))
    assert loss.item() == pytest.approx(expected.item())


def test_the_overlap_is_the_mass_that_both_share() -> None:
    target, draft = _logits(0), _logits(1)
    expected = torch.minimum(target.softmax(-1), draft.softmax(-1)).sum(-1)
    shared = overlap(draft, teach(*_top(target, V), None))
    assert torch.allclose(shared, expected, atol=1e-5)
