"""One of an answer's outputs: what was told of it, and what its pieces show."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from deployments.http.logprob_json import Echo, Prompt
from deployments.ingress.ask import Generation
from deployments.ingress.output import Piece
from deployments.text.tool_calls import Found, ToolCallParser
from specdec_core.request import FinishReason, RequestStats


@dataclass(eq=False, slots=True)
class Choice:
    """One of the outputs of an answer, and what was told of it."""

    index: int
    generation: Generation
    echo: Echo = field(default_factory=Echo)
    parser: ToolCallParser | None = None
    """Reads its text for calls."""
    allows_many_calls: bool = True
    """Calls after the first one are left out unless this is set, as in vLLM."""
    num_tokens: int = 0
    num_calls: int = 0
    stats: RequestStats | None = None

    def __post_init__(self) -> None:
        self.num_tokens = len(self.generation.request.resume_token_ids)

    @property
    def opening(self) -> str:
        """The echo; a client that resumes has it."""
        return "" if self.generation.request.resume_token_ids else self.echo.text

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.generation.request.prompt_token_ids)

    def scored_prompt(self, piece: Piece) -> Prompt | None:
        """None where an end came before it."""
        ids = self.generation.request.prompt_token_ids
        is_scored = len(piece.prompt_logprobs) == len(ids) - 1
        return Prompt(ids, piece.prompt_logprobs) if is_scored else None

    def read(self, piece: Piece) -> Found:
        """What the piece shows, told once."""
        if self.parser is None:
            return Found(piece.text)
        if piece.told_text:
            self.num_calls += len(self.parser.add(piece.told_text).calls)
        found = self.parser.add(piece.text)
        is_told = bool(piece.told_text) and not piece.token_ids  # to the end
        if piece.finish_reason is not None and not is_told:
            rest = self.parser.flush()
            found = Found(found.content + rest.content, found.calls + rest.calls)
        if self.allows_many_calls:
            return found
        return Found(found.content, found.calls[: max(1 - self.num_calls, 0)])

    def call_entries(self, found: Found) -> list[dict[str, Any]]:
        """OpenAI's shape, numbered through the answer."""
        first, self.num_calls = self.num_calls, self.num_calls + len(found.calls)
        return [
            {
                "index": first + place,
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for place, call in enumerate(found.calls)
        ]

    def finish_reason(self, piece: Piece) -> str | None:
        if piece.finish_reason is FinishReason.STOP and self.num_calls:
            return "tool_calls"
        return piece.finish_reason.value if piece.finish_reason else None


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
