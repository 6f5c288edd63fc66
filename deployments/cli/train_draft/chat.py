"""Split the target's chat template, so that the target can also write the user's turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deployments.text.tokenizer import TextModel
from specdec_core.errors import InvalidRequestError

_MARK = "specdecusertext"

OPENERS = (
    "",
    "Summarize the following text: ",
    "",
    "Translate the following text to English: ",
    "",
    "Explain ",
    "",
    "A math problem: ",
    "",
    "Answer the question based on the following passage. ",
    "",
    "Write ",
    "",
    "What is ",
    "",
    "Who ",
    "",
    "Imagine you are ",
    "",
    "Write a Python function that ",
    "",
    "How many ",
    "",
    "Rewrite the following paragraph: ",
)
"""Beginnings of made-up user turns. Half of them are free, the others are like common tasks."""


@dataclass(frozen=True, slots=True)
class TemplateChat:
    """The synthesis's `Chat` over a text model."""

    text: TextModel
    user_prefix_ids: tuple[int, ...]
    user_end_ids: frozenset[int]

    def encode_part(self, text: str) -> tuple[int, ...]:
        return self.text.encode_part(text)

    def encode_user(self, text: str) -> tuple[int, ...]:
        return self.text.encode_chat([{"role": "user", "content": text}])

    def decode(self, ids: Sequence[int]) -> str:
        return self.text.decode(ids)


def template_chat(text: TextModel) -> TemplateChat:
    """Return the split template.

    Raises InvalidRequestError for a model without a chat template, or if the template hides the
    user's words.
    """
    rendered = text.render_chat([{"role": "user", "content": _MARK}])
    before, mark, behind = rendered.partition(_MARK)
    if not mark or not behind:
        raise InvalidRequestError("the chat template does not show where a user's turn ends")
    prefix_ids = text.encode_part(before)
    if not prefix_ids:
        raise InvalidRequestError("the chat template puts nothing before a user's turn")
    return TemplateChat(text, prefix_ids, frozenset(text.encode_part(behind)[:1]))
