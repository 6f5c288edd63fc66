"""Fields of a body that become the prompt, or bring back the token IDs of an answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from pydantic import BaseModel

from deployments.errors import WrongTypeError
from deployments.text.chat_messages import checked_tools
from deployments.text.chat_rendering import ChatOptions, template_variables
from specdec_core.errors import InvalidRequestError


def checked_prompts(prompt: Any) -> list[str | list[int]]:
    """Return a completion's prompts: text or IDs, one or a list of them. Raises for everything
    else."""
    if isinstance(prompt, list) and prompt and all(isinstance(p, str | list) for p in prompt):
        return [_checked_prompt(one) for one in prompt]
    return [_checked_prompt(prompt)]


def _checked_prompt(prompt: Any) -> str | list[int]:
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, list) or not set(map(type, prompt)) <= {int}:
        raise WrongTypeError(
            "prompt: must be a string, a list of token ids, or a list of strings or of such lists",
            param="prompt",
        )
    return prompt


def checked_resume_ids(token_ids: Any) -> Sequence[Sequence[int]]:
    """Return a list of IDs for every choice. Raises InvalidRequestError for everything else."""
    if isinstance(token_ids, list):
        is_nested = bool(token_ids) and all(isinstance(one, list) for one in token_ids)
        choices = token_ids if is_nested else [token_ids]
        if all(_is_id(one) for choice in choices for one in choice):
            return choices
    raise InvalidRequestError(
        "resume.token_ids must be a list of token ids, or one such list for every "
        f"choice, got {json.dumps(token_ids):.80}",
        param="resume.token_ids",
    )


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class ChatFields(BaseModel):
    """The fields next to the messages."""

    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_special_tokens: bool | None = None
    reasoning_effort: str | None = None
    enable_thinking: bool | None = None
    tools: list[Any] | None = None
    tool_choice: str | dict[str, Any] | None = None

    @property
    def calls_tools(self) -> bool:
        """Whether the template gets the tools, and the answer is read for calls."""
        return bool(self.tools) and self.tool_choice != "none"

    @cached_property
    def functions(self) -> list[dict[str, Any]]:
        """The checked tools. Raises InvalidRequestError."""
        return checked_tools(self.tools or [])

    @property
    def begins_in_prompt(self) -> bool:
        """Whether the prompt ends with the beginning of the answer."""
        return self._adds_generation_prompt or bool(self.continue_final_message)

    @property
    def _adds_generation_prompt(self) -> bool:
        adds = self.add_generation_prompt
        return not self.continue_final_message if adds is None else adds

    @property
    def chat_options(self) -> ChatOptions:
        """Return how the conversation is rendered.

        By default an answer begins a new message, unless it continues the last one.
        """
        return ChatOptions(
            add_generation_prompt=self._adds_generation_prompt,
            continues_final_message=bool(self.continue_final_message),
            variables=template_variables(
                {
                    "reasoning_effort": self.reasoning_effort,
                    "enable_thinking": self.enable_thinking,
                    **(self.chat_template_kwargs or {}),
                }
            ),
            template=self.chat_template,
            add_special_tokens=bool(self.add_special_tokens),
            tools=self.functions if self.calls_tools else (),
        )
