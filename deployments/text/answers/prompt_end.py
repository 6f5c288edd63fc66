"""The end of a prompt, which may have the first marks of its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deployments.text.answers.reading import Answers

_WINDOWS = (64, 1_024, 4_096)
"""Numbers of last IDs in which the beginning of the answer is looked for."""


def prompt_end(
    answers: Answers, decode: Callable[[Sequence[int]], str], prompt_token_ids: Sequence[int]
) -> str:
    """Return the prompt's text, at least from where the answer begins, if that can be found."""
    text = ""
    for size in _WINDOWS:
        text = decode(prompt_token_ids[-size:])
        if size >= len(prompt_token_ids) or answers.has_anchor(text):
            break
    return text
