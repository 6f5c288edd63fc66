"""Format of a model's answers: how it marks reasoning and tool calls.

The fields are those of a response template, which `transformers.utils.chat_parsing` documents and
checkpoints may ship. The other attributes say what a model writes, for grammars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

START_ANCHORS = (
    "<|im_start|>assistant\n",
    "<|start|>assistant",
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "<|header_start|>assistant<|header_end|>\n\n",
    "[/INST]",
    "[/TOOL_RESULTS]",
    "<|assistant|>",
    "<assistant>",
    "<role>ASSISTANT</role>",
    "<｜Assistant｜>",
    "<｜tool▁output▁end｜>",
    "<｜tool▁outputs▁end｜>",
    "<|start_of_role|>assistant<|end_of_role|>",
    "<|im_assistant|>assistant<|im_middle|>",
    "]~b]ai\n",
    "<|turn>model\n",
    "<tool_response|>",
    "<seed:bos>assistant\n",
    "<|CHATBOT_TOKEN|>",
    "<SPECIAL_11>Assistant\n",
    "<|Bot|>",
    "<sep>assistant:",
)
"""Texts that begin an answer in a prompt, of all formats. The end of a tool's result is one of them
if a model answers it without another beginning."""

CALLS_FIELD, OLDER_CALLS_FIELD = "tool_calls", "tool_calls_older"

Field = Mapping[str, Any]
"""A field of a response template."""
_ONLY_CONTENT: Mapping[str, Field] = {"content": {}}


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
    special_openings: tuple[str, ...] = ()
    """Special tokens that begin a mark and are never text. A mark that is cut is left out."""
    follows_content: bool = False
    """Reasoning may follow content. Otherwise its marks are text there, as in vLLM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterFormat:
    """How a model writes one argument of a call, if arguments are not one JSON object."""

    opening: str
    """`{key}` stands for the argument's name."""
    closing: str
    other_opening: str | None = None
    """Text before a value that is no string, if another."""
    between: str = ""
    quote: str = ""
    """Text before and after a string."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFormat:
    """How a model writes tool calls."""

    field: Field
    """The field `tool_calls`."""
    opening: str
    """Text before a call's arguments.

    `{name}` stands for the function's name, and `{json_name}` for its name as JSON with quotes.
    `{index}` stands for the call's number in the answer, from 0 on.
    """
    closing: str
    parameters: ParameterFormat | None = None
    """None: the arguments are a JSON object."""
    before: str = ""
    """Text before the first call."""
    between: str = ""
    after: str = ""
    """Text after the last call."""
    tail: str = ""
    """Mark that may follow a call, and that is left out there."""
    call_id_length: int | None = None
    """Length of a call's ID, if the chat template insists on one."""
    older_field: Field | None = None
    """The field of another way of writing, which is read, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFormat:
    """Format of one model's answers."""

    reasoning: ReasoningFormat | None = None
    calls: CallFormat | None = None
    start_anchors: tuple[str, ...] = START_ANCHORS
    own_template: Mapping[str, Any] | None = None
    """The checkpoint's own response template, which is read instead."""

    @property
    def written_marks(self) -> Sequence[str]:
        """Marks that a model writes and that a reader must see."""
        marks: list[str] = []
        if self.reasoning is not None:
            reasoning = self.reasoning
            marks += [reasoning.opening, reasoning.closing, reasoning.content_opening]
        if self.calls is not None:
            calls, argument = self.calls, self.calls.parameters
            marks += [calls.before, calls.opening, calls.closing]
            marks += [argument.opening, argument.closing, argument.quote] if argument else []
        return marks

    def template(self, *, reads_calls: bool) -> dict[str, Any]:
        """Return the response template."""
        if self.own_template is not None:
            fields = dict(self.own_template["fields"])
            if not reads_calls:
                fields.pop(CALLS_FIELD, None)
            return {**self.own_template, "fields": fields or _ONLY_CONTENT}
        fields = dict(self.reasoning.fields) if self.reasoning else {}
        if reads_calls and self.calls is not None:
            fields[CALLS_FIELD] = self.calls.field
            if self.calls.older_field is not None:
                fields[OLDER_CALLS_FIELD] = self.calls.older_field
        return {"start_anchor": list(self.start_anchors), "fields": fields or _ONLY_CONTENT}
