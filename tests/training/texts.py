"""Small documents and drafts for the tests of training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from specdec_core.training.documents import Document
from specdec_core.training.draft_network import DraftShape, build_draft
from specdec_core.training.target_files import TargetFiles, open_target
from specdec_core.training.trainable_draft import TrainableDraft
from tests.tiny_models import VOCAB, tiny_model

NUM_CANDIDATES = 8


def random_documents(count: int, *, seed: int = 0, vocab_size: int = VOCAB) -> list[Document]:
    """Prompts of 3 to 6 ids, answers of 4 to 20, distributions that mean nothing."""
    generator = torch.Generator().manual_seed(seed)
    return [_random_document(index, generator, vocab_size) for index in range(count)]


def _random_document(index: int, generator: torch.Generator, vocab_size: int) -> Document:
    answer_start = int(torch.randint(3, 7, (), generator=generator))
    num_answer = int(torch.randint(4, 21, (), generator=generator))
    logprobs = torch.randn(num_answer, vocab_size, generator=generator).log_softmax(-1)
    top = logprobs.topk(NUM_CANDIDATES, dim=-1)
    ids = torch.randint(vocab_size, (answer_start + num_answer,), generator=generator)
    return Document(index, ids.int(), answer_start, top.indices.int(), top.values.half())


def save_target(folder: Path, architecture: str = "llama", **changes: object) -> TargetFiles:
    tiny_model(architecture, **changes).save_pretrained(folder)
    return open_target(str(folder))


def new_draft(
    target: TargetFiles, shape: DraftShape | None = None, vocab_ids: Sequence[int] | None = None
) -> TrainableDraft:
    return TrainableDraft(build_draft(target, shape or DraftShape(), seed=0), vocab_ids)
