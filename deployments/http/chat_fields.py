"""How a request's conversation becomes a prompt: the fields that every chat route has."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from deployments.text.chat_template import ChatOptions
from deployments.text.tool_calls import checked_tools


class ChatFields(BaseModel):
    """Beside the messages."""

    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_special_tokens: bool | None = None
    tools: list[Any] | None = None
    tool_choice: str | dict[str, Any] | None = None

    @property
    def calls_tools(self) -> bool:
        """Whether the template is told of tools, and the answer is read for calls."""
        return bool(self.tools) and self.tool_choice != "none"

    @property
    def chat_options(self) -> ChatOptions:
        """An answer goes on with the last message, or begins a new one unless that is declined."""
        continues = bool(self.continue_final_message)
        adds = self.add_generation_prompt
        return ChatOptions(
            add_generation_prompt=not continues if adds is None else adds,
            continues_final_message=continues,
            variables=self.chat_template_kwargs or {},
            template=self.chat_template,
            add_special_tokens=bool(self.add_special_tokens),
            tools=checked_tools(self.tools or []) if self.calls_tools else (),
        )
