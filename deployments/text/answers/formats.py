"""Formats in which models write reasoning and tool calls, as data.

The fields are those of a response template, which `transformers.utils.chat_parsing` documents and
checkpoints may ship. Beside them stands what a model writes, for grammars. Names are vLLM's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

START_ANCHORS = (
    "<|im_start|>assistant\n",
    "<|start|>assistant",
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
)
"""Texts that begin an answer in a prompt, of all formats."""

Field = Mapping[str, Any]
"""A field of a response template."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningFormat:
    """How a model marks its reasoning, and the rest of its answer if it marks that, too."""

    fields: Mapping[str, Field]
    """Fields `reasoning_content` and, if the model marks it, `content`."""
    opening: str
    closing: str
    """Texts that a model writes around its reasoning."""
    content_opening: str = ""
    """Text that a model writes before an answer that is no call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterFormat:
    """How a model writes one argument of a call, if arguments are not one JSON object."""

    opening: str
    """`{key}` stands for the argument's name."""
    closing: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFormat:
    """How a model writes tool calls."""

    field: Field
    """The field `tool_calls`."""
    opening: str
    """Text before a call's arguments. `{name}` stands for the function's name."""
    closing: str
    parameters: ParameterFormat | None = None
    """None: the arguments are a JSON object."""
    before: str = ""
    """Text before the first call."""
    between: str = ""
    after: str = ""
    """Text after the last call."""
    call_id_length: int | None = None
    """Length of a call's ID, if the chat template insists on one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFormat:
    """Format of one model's answers."""

    reasoning: ReasoningFormat | None = None
    calls: CallFormat | None = None
    start_anchors: tuple[str, ...] = START_ANCHORS
    own_template: Mapping[str, Any] | None = None
    """The checkpoint's own response template, which is read instead."""

    def template(self, *, reads_calls: bool) -> dict[str, Any]:
        """Return the response template."""
        if self.own_template is not None:
            fields = dict(self.own_template["fields"])
            if not reads_calls:
                fields.pop("tool_calls", None)
            return {**self.own_template, "fields": fields}
        fields = dict(self.reasoning.fields) if self.reasoning else {}
        if reads_calls and self.calls is not None:
            fields["tool_calls"] = self.calls.field
        return {"start_anchor": list(self.start_anchors), "fields": fields}


def _function(name: str, arguments: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


THINK = ReasoningFormat(
    fields={"reasoning_content": {"open": "<think>", "close": "</think>"}},
    opening="<think>\n",
    closing="\n</think>\n\n",
)

REASONING_FORMATS: Mapping[str, ReasoningFormat] = MappingProxyType(
    {
        "qwen3": THINK,
        "deepseek_r1": THINK,
        "openai_gptoss": ReasoningFormat(
            fields={
                "reasoning_content": {
                    "open_pattern": r"(?:<\|start\|>assistant)?<\|channel\|>analysis<\|message\|>",
                    "close": "<|end|>",
                    "repeats": True,
                },
                "content": {
                    "open_pattern": r"(?:<\|start\|>assistant)?"
                    r"<\|channel\|>(?:final|commentary)<\|message\|>",
                    "close": ["<|end|>", "<|return|>"],
                    "repeats": True,
                },
            },
            opening="<|channel|>analysis<|message|>",
            closing="<|end|><|start|>assistant",
            content_opening="<|channel|>final<|message|>",
        ),
    }
)

CALL_FORMATS: Mapping[str, CallFormat] = MappingProxyType(
    {
        "hermes": CallFormat(
            field={
                "open_pattern": r"<tool_call>\s*(?=\{)",
                "close": "</tool_call>",
                "repeats": True,
                "content": "json",
                "transform": {"type": "function", "function": "{content}"},
            },
            opening='<tool_call>\n{"name": {name}, "arguments": ',
            closing="}\n</tool_call>",
            between="\n",
        ),
        "openai": CallFormat(
            field={
                "open_pattern": r"(?:<\|start\|>assistant)?(?: to=functions\.(?P<to>[\w.-]+))?"
                r"<\|channel\|>(?:commentary|analysis) to=functions\.(?P<name>[\w.-]+)"
                r"\s*(?:<\|constrain\|>)?\w*<\|message\|>",
                "close": "<|call|>",
                "repeats": True,
                "content": "json",
                "transform": _function("{name}", "{content}"),
            },
            opening="<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>",
            closing="<|call|>",
        ),
    }
)
