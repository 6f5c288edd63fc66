"""Marks in the texts of a conversation, which show what of it a chat template drops."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from deployments.text.template_input import Message, TemplateInput
from specdec_core.errors import InvalidRequestError

_NUM_DIGITS = 6
"""Digits of a mark after those that all marks of a conversation share."""


class Marks:
    """The marks of one conversation, each with the refusal if it is not shown.

    A mark is a number that no text contains by chance. Templates copy digits as they are.
    """

    def __init__(self) -> None:
        self._shared = str(secrets.randbelow(10**15) + 10**15)
        self._refusals: list[InvalidRequestError] = []
        self._end = ""

    def put(self, given: TemplateInput) -> TemplateInput:
        """Return the conversation with a mark in every text that must be shown."""
        last = len(given.messages) - 1 if given.continues_final_message else None
        messages = [
            self._message(f"messages.{i}", message, is_continued=i == last)
            for i, message in enumerate(given.messages)
        ]
        tools = [self._tool(f"tools.{i}", tool) for i, tool in enumerate(given.tools)]
        variables = {
            name: tools if tools and value == list(given.tools) else value
            for name, value in given.variables.items()  # SmolLM3 takes tools as `xml_tools`
        }
        return replace(given, messages=messages, tools=tools, variables=variables)

    def check(self, rendered: str, *, is_cut: bool) -> None:
        """Raise InvalidRequestError for the first mark that is not in the text.

        `is_cut`: the prompt ends with the last message.
        """
        if is_cut:
            rendered = rendered[: rendered.rfind(self._end) + len(self._end)]
        shown = {after[:_NUM_DIGITS] for after in rendered.split(self._shared)[1:]}
        for number, refusal in enumerate(self._refusals):
            if f"{number:0{_NUM_DIGITS}}" not in shown:
                raise refusal

    def _new(self, where: str, reason: str) -> str:
        self._refusals.append(
            InvalidRequestError(f"{where}: {reason}", param=where, code="unsupported_value")
        )
        return f"{self._shared}{len(self._refusals) - 1:0{_NUM_DIGITS}}"

    def _message(self, where: str, message: Message, *, is_continued: bool) -> Message:
        marked = dict(message)
        content, role = message["content"] or "", message["role"]
        if content.strip() or is_continued:
            marked["content"] = self._text(f"{where}.content", role, content)
        if message.get("tool_calls"):
            calls = enumerate(message["tool_calls"])
            marked["tool_calls"] = [self._call(f"{where}.tool_calls.{i}", c) for i, c in calls]
        return marked

    def _text(self, where: str, role: str, content: str) -> str:
        """Mark both ends. An answer may begin with reasoning that is dropped: mark only its end."""
        reason = (
            "the model's chat template does not show the text of this message of role "
            f"{role!r:.40}: give it another role or place, or leave it out"
        )
        start = "" if role == "assistant" else self._new(where, reason)
        self._end = self._new(where, reason)
        return start + content + self._end

    def _call(self, where: str, call: Mapping[str, Any]) -> dict[str, Any]:
        reason = "the model's chat template does not show this call: leave it out"
        name = call["function"]["name"] + self._new(where, reason)
        mark = self._new(where, reason)
        given = call["function"]["arguments"]
        arguments = given + mark if isinstance(given, str) else {**given, f"a{mark}": mark}
        return {**call, "function": {**call["function"], "name": name, "arguments": arguments}}

    def _tool(self, where: str, tool: Mapping[str, Any]) -> dict[str, Any]:
        mark = self._new(where, "the model's chat template knows none: leave tools out")
        function = tool["function"]
        return {**tool, "function": {**function, "name": function["name"] + mark}}
