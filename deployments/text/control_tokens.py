"""Keeps text of a conversation from becoming control tokens, such as `<|im_end|>`.

Follows transformers' `sanitize_control_tokens`. Control tokens are the tokenizer's special tokens
and the added tokens that the template writes itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from deployments.text.chat_messages import Message, SpecialTokensInText
from deployments.text.chat_rendering import ChatOptions, ChatTemplate
from specdec_core.errors import InvalidRequestError

_OPEN, _CLOSE = "\U000f0000", "\U000f0001"
"""Private-use characters around a control token that a request has written."""
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""Roles of requests. Some templates make a control token of any role, such as `<|end|>`."""

Change = Callable[[str, str], str]
"""From a text and its field to the text that replaces it."""
Encode = Callable[[str, bool], list[int]]
"""From a text to its IDs; whether the tokenizer's special tokens are put around it."""


@dataclass(frozen=True)
class ControlTokens:
    """Control tokens of a model, and how texts that contain them are treated."""

    ids: Mapping[str, int]
    treatment: SpecialTokensInText

    def guarded(
        self, messages: Sequence[Message], options: ChatOptions
    ) -> tuple[list[Message], ChatOptions]:
        """Return both with control tokens marked. Raises InvalidRequestError if that is refused."""
        self._check_roles(messages)
        change = self._refuse if self.treatment is SpecialTokensInText.REFUSE else self._mark
        changed = replace(
            options,
            variables=_mapped(options.variables, change, "chat_template_kwargs"),
            tools=_mapped(list(options.tools), change, "tools"),
        )
        return _mapped(list(messages), change, "messages"), changed

    def encode(self, rendered: str, encode: Encode, *, add_special_tokens: bool) -> tuple[int, ...]:
        """Return the IDs of a rendered text, with marked tokens as ordinary text.

        Text on both sides of a mark is encoded apart, so it joins into no control token.
        """
        if self.treatment is SpecialTokensInText.REFUSE:
            return tuple(encode(rendered, add_special_tokens))
        first, *others = self._marks.split(rendered)
        ids = list(encode(first, False))
        before, behind = _around(first, ids, encode) if add_special_tokens else ([], [])
        spelled: dict[str, list[int]] = {}
        for number, part in enumerate(others):
            if part and number % 2:
                ids += _inner_ids(part, encode)
            elif part:
                spelled[part] = spelled.get(part) or self.spell(part, encode)
                ids += spelled[part]
        return (*before, *ids, *behind)

    def spell(self, token: str, encode: Encode) -> list[int]:
        """Return the IDs of a control token as text. Raises InvalidRequestError without any."""
        for cut in range(1, len(token)):
            ids = _inner_ids(token[:cut], encode) + _inner_ids(token[cut:], encode)
            if not set(ids) & set(self.ids.values()):
                return ids
        raise InvalidRequestError(
            f"the tokenizer cannot write {token!r:.80} as ordinary text", param="messages"
        )

    def _check_roles(self, messages: Sequence[Message]) -> None:
        for index, message in enumerate(messages):
            if message["role"] not in _ROLES:
                raise InvalidRequestError(
                    f"messages.{index}.role: must be one of {', '.join(_ROLES)} on this server "
                    f"(special_tokens_in_text={self.treatment}), got {message['role']!r:.40}",
                    param=f"messages.{index}.role",
                )

    def _refuse(self, text: str, where: str) -> str:
        match = self._pattern.search(text)
        if match is not None:
            raise InvalidRequestError(
                f"{where} contains {match[0]!r}, a control token of the model: this "
                "server refuses control tokens in texts (special_tokens_in_text=refuse)",
                param=where,
            )
        return text

    def _mark(self, text: str, where: str) -> str:
        text = text.replace(_OPEN, "").replace(_CLOSE, "")  # nobody forges a mark
        return self._pattern.sub(f"{_OPEN}\\g<0>{_CLOSE}", text)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """Any control token; a token wins over the tokens that it contains."""
        longest_first = sorted(self.ids, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    @cached_property
    def _marks(self) -> re.Pattern[str]:
        """A marked token, or a mark alone: templates may cut a text within a token."""
        return re.compile(f"{_OPEN}({self._pattern.pattern}){_CLOSE}|[{_OPEN}{_CLOSE}]")


def control_token_ids(
    added_tokens: Mapping[int, Any], template: ChatTemplate | None
) -> dict[str, int]:
    """Return the control tokens by their text."""
    templates = [one for one in (template, template and template.tool_use) if one is not None]
    written = "\0".join(text for one in templates for text in one.literals)
    return {
        token.content: token_id
        for token_id, token in added_tokens.items()
        if token.special or (token.content in written and not token.content.isspace())
    }


def _mapped(value: Any, change: Change, where: str) -> Any:
    """Return `value` with all of its texts changed, names of object members included."""
    if isinstance(value, str):
        return change(value, where)
    if isinstance(value, Mapping):
        return {
            _mapped(name, change, where): _mapped(one, change, f"{where}.{name}")
            for name, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [_mapped(one, change, f"{where}.{i}") for i, one in enumerate(value)]
    return value


def _around(text: str, ids: list[int], encode: Encode) -> tuple[list[int], list[int]]:
    """Return the special tokens that the tokenizer puts before and after a text."""
    whole = encode(text, True)
    num_before = next(i for i in range(len(whole) + 1) if whole[i : i + len(ids)] == ids)
    return whole[:num_before], whole[num_before + len(ids) :]


def _inner_ids(text: str, encode: Encode) -> list[int]:
    """Return the IDs of text within other text, where SentencePiece adds no space."""
    line_end, ids = encode("\n", False), encode("\n" + text, False)
    starts = ids[: len(line_end)] == line_end
    return ids[len(line_end) :] if starts else encode(text, False)
