"""The text of a prompt as an echo shows it, and where its tokens begin."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from deployments.text.detokenizer import (
    IncrementalDetokenizer,
    certain_text,
    num_unfinished,
)
from deployments.text.tokenizer import TextModel


def echo_of(
    text: TextModel, token_ids: Sequence[int], given: str | None, has_offsets: bool
) -> tuple[str, tuple[int, ...]]:
    """Return a prompt's text, which is `given` if it is known, and its tokens' offsets."""
    shown = prompt_text(text, token_ids) if given is None else given
    return shown, prompt_offsets(text, token_ids, given) if has_offsets else ()


def prompt_text(text: TextModel, token_ids: Sequence[int]) -> str:
    """Return the text of these IDs, without a character that only the answer may finish."""
    num_whole = len(token_ids) - num_unfinished(token_ids, text.token_bytes)
    return certain_text(text.decode_all, token_ids, num_whole)


def prompt_offsets(
    text: TextModel, token_ids: Sequence[int], shown: str | None = None
) -> tuple[int, ...]:
    """Return how many characters are certain before each token, special tokens included.

    With `shown`, offsets count from its start: special tokens that precede a text are not in it.
    """
    detokenizer = IncrementalDetokenizer(text.decode_all)
    parts = [detokenizer.add(token_id) for token_id in token_ids]
    whole = "".join(parts) + detokenizer.flush()
    is_end = shown is not None and whole.endswith(shown)
    num_before = len(whole) - len(shown or "") if is_end else 0
    starts = accumulate(map(len, parts[:-1]), initial=0)
    return tuple(max(0, start - num_before) for start in starts)
