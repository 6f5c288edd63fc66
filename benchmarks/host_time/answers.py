"""Scripts of random prompts and answers, whose proposals are right with a chosen probability."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from specdec_core.config import SpecMethod
from specdec_core.speculation.drafter import Row
from specdec_core.speculation.ngram import NgramDrafter, NgramIndex
from specdec_core.speculation.registry import DRAFTERS

UNKNOWN = -1
"""Number of a sequence that no script has."""
_HEAD_LEN = 8
"""Tokens by which a prompt is recognised."""
_MARGIN = 64
"""Tokens after an answer that a script may be asked for; they are never emitted."""
_AGREED = 4
"""Tokens that are said to agree before a scripted lookup: a usual copy."""


class AnswerScript:
    """Recorded answers; implements Script. Each token is right with a seeded probability."""

    def __init__(
        self,
        prompts: Sequence[tuple[int, ...]],
        answers: Sequence[tuple[int, ...]],
        *,
        vocab_size: int,
        probability: float = 1.0,
    ) -> None:
        """Prompts must differ within their first 8 tokens."""
        self._numbers = {prompt[:_HEAD_LEN]: i for i, prompt in enumerate(prompts)}
        assert len(self._numbers) == len(prompts), "two prompts begin alike"
        longest = max(
            len(prompt) + len(answer) for prompt, answer in zip(prompts, answers, strict=True)
        )
        self._unknown = [0] * (longest + _MARGIN)
        self._texts = [
            [*prompt, *_with_mistakes(answer, probability, vocab_size, i), *[0] * _MARGIN]
            for i, (prompt, answer) in enumerate(zip(prompts, answers, strict=True))
        ]

    def begin(self, ids: Sequence[int]) -> int:
        """See Script."""
        return self._numbers.get(tuple(ids[:_HEAD_LEN]), UNKNOWN)

    def following(self, number: int, num_ids: int, count: int) -> Sequence[int]:
        """See Script."""
        text = self._unknown if number == UNKNOWN else self._texts[number]
        return text[num_ids - count + 1 : num_ids + 1]


def random_texts(count: int, length: int, vocab_size: int, seed: int = 0) -> list[tuple[int, ...]]:
    """Return `count` texts of uniformly random tokens."""
    rng = random.Random(f"{seed}/{count}")
    return [tuple(rng.choices(range(vocab_size), k=length)) for _ in range(count)]


@contextmanager
def lookups_from(script: AnswerScript) -> Iterator[None]:
    """Within it, each prompt lookup searches as usual and then proposes what `script` says."""

    class ScriptedIndex(NgramIndex):
        __slots__ = ("_number",)

        def __init__(self, ids: Sequence[int], config: Any) -> None:
            super().__init__(ids, config)
            self._number = script.begin(ids)

        def propose(self, num_tokens: int) -> tuple[int, ...]:
            super().propose(num_tokens)
            self.match_len = _AGREED
            last = len(self._ids) + num_tokens - 1
            return tuple(script.following(self._number, last, num_tokens))

    class ScriptedDrafter(NgramDrafter):
        def begin(self, row: Row) -> NgramIndex:
            return ScriptedIndex(row.ids, self.lengths)

    with mock.patch.dict(DRAFTERS, {SpecMethod.NGRAM: ScriptedDrafter}):
        yield


def _with_mistakes(
    answer: Sequence[int], probability: float, vocab_size: int, seed: int
) -> list[int]:
    rng = random.Random(seed)
    return [token if rng.random() < probability else (token + 1) % vocab_size for token in answer]
