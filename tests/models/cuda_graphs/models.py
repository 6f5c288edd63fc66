"""Pairs of one tiny model: as the host runs it, and in fixed shapes."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor

from specdec_core.model import score
from specdec_core.worker.cuda_graphs.recorder import DirectRecorder, Recorder
from specdec_core.worker.model_runner import ModelRunner
from tests.tiny_models import VOCAB, tiny_decoder


def ragged(decoder: str, **limits: Any) -> ModelRunner:
    limits = {"kv_cache_tokens": 4096} | limits
    return ModelRunner(tiny_decoder(decoder), vocab_size=VOCAB, **limits)


def fixed(decoder: str, recorder: Recorder | None = None, **limits: Any) -> ModelRunner:
    return ragged(decoder, recorder=recorder or DirectRecorder(), **limits)


class Twins:
    """The same calls to two models; what they answer must be the same."""

    def __init__(self, *models: ModelRunner, seed: int = 0) -> None:
        self.models = models
        self.rng = random.Random(seed)
        self.lens: dict[int, int] = {}

    def allocate(self) -> int:
        (slot,) = {model.allocate() for model in self.models}
        self.lens[slot] = 0
        return slot

    def rollback(self, slot: int, length: int) -> None:
        for model in self.models:
            model.rollback(slot, length)
        self.lens[slot] = min(self.lens[slot], length)

    def score(self, counts: dict[int, tuple[int, int]]) -> list[Tensor]:
        """Random tokens; `counts` has how many a slot is fed, and how many logits it wants."""
        feeds = [
            (slot, [self.rng.randrange(VOCAB) for _ in range(count)], wanted)
            for slot, (count, wanted) in counts.items()
        ]
        for slot, (count, _) in counts.items():
            self.lens[slot] += count
        return [score(model, feeds) for model in self.models]

    def check(self, counts: dict[int, tuple[int, int]]) -> None:
        first, *others = self.score(counts)
        for other in others:
            torch.testing.assert_close(other, first, atol=2e-5, rtol=1e-5)
            assert torch.equal(other.argmax(-1), first.argmax(-1))
