"""Recorded answers, and proposals made from them: each right with a seeded probability."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from specdec_core.host_copies import on_device

UNKNOWN = -1
"""Number of a sequence that was not recorded."""
_NO_IDEA = 0
_CERTAIN = 1e4
"""A logit that no noise of the sampler outweighs, at any temperature that is used."""


class AnswerBook:
    """What follows any prefix of the recorded sequences, right with a seeded probability."""

    def __init__(
        self,
        prompts: Sequence[tuple[int, ...]],
        answers: Sequence[tuple[int, ...]],
        *,
        probability: float,
        vocab_size: int,
        seed: int = 0,
    ) -> None:
        self._prompts = prompts
        self._proposals = [
            _with_mistakes(answer, probability, vocab_size, random.Random(f"{seed}/{number}"))
            for number, answer in enumerate(answers)
        ]

    def number_of(self, ids: Sequence[int]) -> int:
        """The sequence that begins with `ids`, or whose prompt `ids` begins with; else UNKNOWN."""
        head = tuple(ids)
        for number, prompt in enumerate(self._prompts):
            length = min(len(prompt), len(head))
            if prompt[:length] == head[:length]:
                return number
        return UNKNOWN

    def next_tokens(self, number: int, num_ids: int, count: int) -> list[int]:
        """What follows each of the `count` longest prefixes of a sequence's first `num_ids` ids."""
        return [self._next(number, end) for end in range(num_ids - count + 1, num_ids + 1)]

    def _next(self, number: int, num_ids: int) -> int:
        if number == UNKNOWN:
            return _NO_IDEA
        place = num_ids - len(self._prompts[number])
        proposals = self._proposals[number]
        return proposals[place] if 0 <= place < len(proposals) else _NO_IDEA


def _with_mistakes(
    answer: Sequence[int], probability: float, vocab_size: int, rng: random.Random
) -> list[int]:
    return [token if rng.random() < probability else (token + 1) % vocab_size for token in answer]


def one_hot_like(logits: Tensor, tokens: Sequence[int]) -> Tensor:
    """Logits of the same shape that choose `tokens`."""
    index = on_device(tokens, torch.long, logits.device).unsqueeze(1)
    return torch.zeros_like(logits).scatter_(1, index, _CERTAIN)
