"""Script the answers of models and the guesses of drafters.

A token depends on the prompt and the place alone. So target, draft and coordinator agree, each in a
process of its own, and share no book.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

HEAD = 8
"""Tokens at the start of a prompt that name its sequence. No two prompts may share them."""
FIRST_TEXT_ID = 273
"""Lowest ID that is scripted. Lower IDs are control tokens and single bytes of the demo's
tokenizer. A stream would hold back bytes that are no text yet."""
_AHEAD = 512
"""Tokens of a sequence that are worked out at a time."""


class _Sequence:
    """Answer of one sequence, and the luck of each guess, by place."""

    def __init__(self, number: int) -> None:
        self._random = random.Random(number)
        self.answers: list[int] = []
        self.luck: list[float] = []
        """Uniform in [0, 1): a guess is right if this is below the acceptance."""

    def reach(self, place: int, vocab_size: int) -> None:
        while len(self.answers) <= place:
            self.answers += [
                self._random.randrange(FIRST_TEXT_ID, vocab_size) for _ in range(_AHEAD)
            ]
            self.luck += [self._random.random() for _ in range(_AHEAD)]


class TokenScript:
    """Implements Script of benchmarks/host_time/scripted.py, for a target or for a drafter."""

    def __init__(self, vocab_size: int, acceptance: Callable[[], float] = lambda: 1.0) -> None:
        """`acceptance` returns the probability that a token is the target's; 1.0 is the target."""
        self._vocab_size = vocab_size
        self._acceptance = acceptance
        self._sequences: dict[int, _Sequence] = {}

    def begin(self, ids: Sequence[int]) -> int:
        """See Script. The first HEAD of `ids` decide."""
        number = hash(tuple(ids[:HEAD]))
        if number not in self._sequences:
            self._sequences[number] = _Sequence(number)
        return number

    def following(self, number: int, num_ids: int, count: int) -> Sequence[int]:
        """See Script."""
        return self.tokens(number, num_ids - count + 1, count)

    def tokens(self, number: int, place: int, count: int) -> Sequence[int]:
        """Return the `count` tokens of the sequence from `place` on."""
        sequence, end = self._sequences[number], place + count
        sequence.reach(end, self._vocab_size)
        right, acceptance = sequence.answers[place:end], self._acceptance()
        if acceptance >= 1.0:
            return right
        luck = sequence.luck[place:end]
        return [
            token if chance < acceptance else self._other(token)
            for token, chance in zip(right, luck, strict=True)
        ]

    def _other(self, token: int) -> int:
        return token + 1 if token + 1 < self._vocab_size else FIRST_TEXT_ID
