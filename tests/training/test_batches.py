"""Every document once an epoch, in batches that keep their limit, in an order that a seed fixes."""

from __future__ import annotations

import torch

from specdec_core.training.batches import collate, plan_batches
from tests.training.texts import NUM_CANDIDATES, random_documents

LENGTHS = [(7 * i) % 31 + 2 for i in range(200)]
LIMIT = 128


def test_every_document_comes_once_an_epoch() -> None:
    plan = plan_batches(LENGTHS, LIMIT, 3, seed=0)
    counts = torch.tensor([i for batch in plan for i in batch]).bincount(minlength=len(LENGTHS))
    assert counts.tolist() == [3] * len(LENGTHS)


def test_padded_batches_keep_their_limit() -> None:
    for batch in plan_batches(LENGTHS, LIMIT, 2, seed=0):
        assert len(batch) * max(LENGTHS[i] for i in batch) <= LIMIT


def test_a_document_longer_than_the_limit_has_a_batch_of_its_own() -> None:
    assert sorted(plan_batches([5, 500, 5], 10, 1, seed=0)) == [[0, 2], [1]]


def test_the_seed_fixes_the_order_and_epochs_differ() -> None:
    plan = plan_batches(LENGTHS, LIMIT, 2, seed=0)
    assert plan == plan_batches(LENGTHS, LIMIT, 2, seed=0)
    assert plan != plan_batches(LENGTHS, LIMIT, 2, seed=1)
    assert plan[: len(plan) // 2] != plan[len(plan) // 2 :]


def test_places_are_where_answers_are_predicted() -> None:
    documents = random_documents(4)
    batch = collate(documents, torch.device("cpu"))
    assert batch.top_ids.shape == (len(batch.positions), NUM_CANDIDATES)
    following = batch.ids.flatten()[batch.positions + 1]
    answers = torch.cat([document.ids[document.answer_start :] for document in documents])
    assert torch.equal(following, answers.long())
