"""One output of an answer: what was sent of it, and what its chunks show."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from deployments.api.http.logprob_json import Echo, Prompt
from deployments.ingress.answer import ReadAnswer
from deployments.ingress.generation_request import Generation
from deployments.ingress.output import OutputChunk
from deployments.text.answers.reading import Found
from specdec_core.request import RequestStats

REASONING_NAMES = ("reasoning", "reasoning_content")
"""Names of the reasoning: vLLM's, and that of DeepSeek and most clients."""


@dataclass(eq=False, slots=True)
class Choice:
    """One output of an answer, and what was sent of it."""

    index: int
    generation: Generation
    echo: Echo = field(default_factory=Echo)
    answer: ReadAnswer = field(init=False)
    num_tokens: int = 0
    stats: RequestStats | None = None

    def __post_init__(self) -> None:
        self.answer = ReadAnswer(self.generation.reading)
        self.num_tokens = len(self.generation.request.resume_token_ids)

    @property
    def opening(self) -> str:
        """The echo. A client that resumes already has it."""
        return "" if self.generation.request.resume_token_ids else self.echo.text

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.generation.request.prompt_token_ids)

    def scored_prompt(self, piece: OutputChunk) -> Prompt | None:
        """Return the scored prompt. None if the answer ended before it came."""
        ids = self.generation.request.prompt_token_ids
        is_scored = len(piece.prompt_logprobs) == len(ids) - 1
        return Prompt(ids, piece.prompt_logprobs) if is_scored else None

    def message(self, found: Found) -> dict[str, Any]:
        """Return the message of a whole answer.

        Its content is null if the answer has calls or reasoning, and no other text.
        """
        text = self.echo.text + found.content
        is_null = not text and (bool(found.calls) or self.answer.has_reasoned)
        calls = [
            # OpenAI numbers calls in chunks only.
            {name: value for name, value in call.items() if name != "index"}
            for call in self._calls(found)
        ]
        message = {"role": "assistant", "content": None if is_null else text}
        return message | _reasoning(found) | ({"tool_calls": calls} if calls else {})

    def delta(self, found: Found) -> dict[str, Any]:
        """Return what a chunk adds to the message; empty if that is nothing."""
        content = {"content": found.content} if found.content else {}
        calls = {"tool_calls": self._calls(found)} if found.calls else {}
        return _reasoning(found) | content | calls

    def _calls(self, found: Found) -> list[dict[str, Any]]:
        """Return the calls in OpenAI's shape, numbered through the answer."""
        first = self.answer.num_calls - len(found.calls)
        return [
            {
                "index": first + place,
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for place, call in enumerate(found.calls)
        ]

    def finish_reason(self, piece: OutputChunk) -> str | None:
        if self.answer.ends_with_calls(piece):
            return "tool_calls"
        return piece.finish_reason.value if piece.finish_reason else None


def _reasoning(found: Found) -> dict[str, str]:
    return dict.fromkeys(REASONING_NAMES, found.reasoning) if found.reasoning else {}


def says_nothing(chunk: dict[str, Any]) -> bool:
    """Return whether a chat's client learns nothing from a chunk."""
    (told,) = chunk["choices"]
    is_over = told["finish_reason"] is not None
    extras = chunk.keys() & {"usage", "warnings"} or told.keys() & {"token_ids"}
    return not (told["delta"] or told["logprobs"] or is_over or extras)


def with_calls_before_end(chunk: dict[str, Any]) -> list[dict[str, Any]]:
    """Split a chat's chunk that has both calls and the finish reason.

    OpenAI's clients take a call for complete when a later chunk has the finish reason.
    """
    told = chunk["choices"][0]
    if told["finish_reason"] is None or "tool_calls" not in told.get("delta", {}):
        return [chunk]
    ends = {name: told[name] for name in ("finish_reason", "stop_reason") if name in told}
    last = {"index": told["index"], "delta": {}, "logprobs": None} | ends
    first = {name: value for name, value in told.items() if name != "stop_reason"}
    first["finish_reason"] = None
    return [chunk | {"choices": [first]}, chunk | {"choices": [last]}]
