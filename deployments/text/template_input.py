"""The conversation, tools and variables that a chat template gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Message = Mapping[str, Any]
MAX_TEMPLATE_SECONDS = 2.0
"""Default CPU time for rendering a request's own template, in seconds."""


class SpecialTokensInText(StrEnum):
    """Treatment of control tokens in the texts of a conversation."""

    ALLOW = "allow"
    """They are control tokens, as in vLLM and transformers."""
    PLAIN = "plain"
    """They are ordinary text."""
    REFUSE = "refuse"
    """The request is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateInput:
    """Everything that a chat template gets."""

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True
    continues_final_message: bool = False

    @property
    def by_name(self) -> dict[str, Any]:
        """Values by the names that templates use."""
        return {
            **self.variables,
            "messages": self.messages,
            "tools": list(self.tools) or None,
            "add_generation_prompt": self.add_generation_prompt,
        }
