"""Marks of a format as parts of a grammar: text, and special tokens, which text cannot spell."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deployments.text.lark_source import lark_string

if TYPE_CHECKING:
    from deployments.text.tokenizer import TextModel

TERMINALS = ("ANY: /(?s:.*)/", "SOME: /(?s:.+)/")
"""Terminals that other terminals name: any text, and any text but the empty one."""


@dataclass(frozen=True, slots=True)
class MarkTokens:
    """Tokens of a model that its marks may contain."""

    ids: Mapping[str, int] = field(default_factory=dict)
    """IDs by text, of the tokens that the grammar library does not match with text."""
    end_ids: Collection[int] = ()
    """IDs that end an answer."""

    def split(self, text: str) -> list[str]:
        """Return text and tokens in turns. A token wins over the tokens that it contains."""
        longest_first = sorted((one for one in self.ids if one in text), key=len, reverse=True)
        if not longest_first:
            return [text]
        return re.split(f"({'|'.join(map(re.escape, longest_first))})", text)

    def written(self, text: str) -> str:
        """Return the grammar of a mark, up to the first token that ends the answer."""
        parts: list[str] = []
        for number, part in enumerate(self.split(text)):
            if number % 2 and self.ids[part] in self.end_ids:
                break
            if part:
                parts.append(f"<[{self.ids[part]}]>" if number % 2 else lark_string(part))
        return " ".join(parts)

    def ends_answer(self, text: str) -> bool:
        """Return whether a mark contains a token that ends the answer."""
        return any(self.ids[part] in self.end_ids for part in self.split(text)[1::2])


def mark_tokens(text: TextModel) -> MarkTokens:
    """Return the tokens of a model that its marks may contain.

    The grammar library keeps an added token out of text if it is special or looks like a tag, such
    as Qwen3's `<think>`.
    """
    added = text.backend.get_added_tokens_decoder()
    ids = {
        token.content: token_id
        for token_id, token in added.items()
        if token.special or (token.content.startswith("<") and token.content.endswith(">"))
    }
    return MarkTokens(ids, text.end_token_ids)


def text_until(
    text: str, closing: str, tokens: MarkTokens, terminal: str, marks: Sequence[str] = ()
) -> tuple[str, str]:
    """Return the part of a rule for a text with its closing mark, and the terminal that it names.

    `text` is the expression of a terminal. The text contains none of `marks`, of which `closing`
    writes one, so the first mark is the closing one. Without `marks`, `closing` is the only one.
    """
    layout = closing[: len(closing) - len(closing.lstrip())]
    written = closing[len(layout) :]
    mark = next((one for one in marks if written.startswith(one)), written.strip())
    spelled, *rest = tokens.split(mark)
    is_last = "ANY" if rest else "SOME"
    refused = [f"ANY {lark_string(mark)} {is_last}"]
    refused += [f"ANY {lark_string(one)} ANY" for one in marks if one != mark]
    whole = f"({text}) {lark_string(layout + spelled)}" if layout + spelled else f"({text})"
    expression = " & ".join([f"({whole})", *(f"~({one})" for one in refused)])
    others = tokens.written("".join(rest) + written[len(mark) :])
    line = f"{terminal}: {expression}"
    if rest:
        return f"{terminal} {others}", line
    # The library must know at once that the text is over: it fails at a special token after a
    # text that has not ended.
    rule = terminal.lower()
    return f"{rule} {others}", f"{rule}[lazy]: {terminal}\n{line}"
