"""Bodies that the OpenAI routes answer with."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from deployments.ask import Generation
from deployments.config import SpecMetrics
from deployments.errors import public_message, status_of
from deployments.logprob_json import TokenBytes, chat_logprobs, completion_logprobs
from deployments.output import Piece
from deployments.tool_calls import Found, ToolCallParser
from specdec_core.request import FinishReason, RequestStats


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What differs between the two completion routes."""

    id_prefix: str
    object_name: str
    chunk_object_name: str
    is_chat: bool


@dataclass(eq=False, slots=True)
class Timing:
    """When an answer's tokens came, as the ingress saw it; seconds of one clock."""

    started: float = field(default_factory=time.monotonic)
    first: float | None = None
    last: float = 0.0
    num_tokens: int = 0

    def note(self, piece: Piece) -> None:
        """A piece has come."""
        if piece.token_ids:
            self.last = time.monotonic()
            self.first = self.last if self.first is None else self.first
            self.num_tokens += len(piece.token_ids)

    def milliseconds(self) -> dict[str, float]:
        """Nothing before the first token."""
        if self.first is None:
            return {}
        between = (self.last - self.first) / max(self.num_tokens - 1, 1)
        return {
            "time_to_first_token_ms": (self.first - self.started) * 1000,
            "generation_time_ms": (self.last - self.first) * 1000,
            "mean_itl_ms": between * 1000,
            "tokens_per_second": self.num_tokens / max(self.last - self.started, 1e-9),
        }


COMPLETION = Shape(
    id_prefix="cmpl",
    object_name="text_completion",
    chunk_object_name="text_completion",
    is_chat=False,
)
CHAT = Shape(
    id_prefix="chatcmpl",
    object_name="chat.completion",
    chunk_object_name="chat.completion.chunk",
    is_chat=True,
)


@dataclass(eq=False, slots=True)
class Choice:
    """One of the outputs of an answer, and what was told of it."""

    index: int
    generation: Generation
    echo: str
    """Text that its own follows."""
    parser: ToolCallParser | None = None
    """Reads its text for calls."""
    num_tokens: int = 0
    num_calls: int = 0
    stats: RequestStats | None = None

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.generation.request.prompt_token_ids)

    def read(self, piece: Piece) -> Found:
        """What the piece shows, told once."""
        if self.parser is None:
            return Found(piece.text)
        found = self.parser.add(piece.text)
        if piece.finish_reason is not None:
            rest = self.parser.flush()
            found = Found(found.content + rest.content, found.calls + rest.calls)
        return found

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


@dataclass(eq=False, slots=True, kw_only=True)
class Response:
    """One answer in the making: whole, or chunk by chunk. A piece is told once."""

    shape: Shape
    choices: Sequence[Choice]
    """n for every prompt."""
    n: int
    model: str
    system_fingerprint: str
    num_spec_tokens: int
    """K that is aimed at for this request."""
    token_bytes: TokenBytes
    metrics: SpecMetrics
    return_token_ids: bool
    counts_in_chunks: bool = False
    """Whether every chunk carries the usage so far."""
    created: int = field(default_factory=lambda: int(time.time()))
    timing: Timing = field(default_factory=Timing)

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """All choices' outputs; `timing` was told of them as they came."""
        told = []
        for choice, piece in zip(self.choices, pieces, strict=True):
            entry, content, calls = self._told(choice, piece)
            text = choice.echo + content
            if self.shape.is_chat:
                # OpenAI numbers calls in chunks only.
                numbered = [{k: v for k, v in call.items() if k != "index"} for call in calls]
                message = {"role": "assistant", "content": text or None if calls else text}
                entry["message"] = message | ({"tool_calls": numbered} if calls else {})
            else:
                entry["text"] = text
            told.append(entry)
        body = self._body(self.shape.object_name)
        return body | {"choices": told, "usage": self._usage()} | self._metrics()

    def first_chunks(self) -> list[dict[str, Any]]:
        """What stands before every choice's first token: its role, or the prompt's echo."""
        return [
            self._chunk([self._opening(choice)])
            for choice in self.choices
            if self.shape.is_chat or choice.echo
        ]

    def chunk(self, place: int, piece: Piece) -> dict[str, Any]:
        self.timing.note(piece)
        entry, content, calls = self._told(self.choices[place], piece)
        if self.shape.is_chat:
            delta: dict[str, Any] = {"content": content} if content else {}
            entry["delta"] = delta | ({"tool_calls": calls} if calls else {})
        else:
            entry["text"] = content
        return self._chunk([entry])

    def usage_chunk(self) -> dict[str, Any]:
        return self._chunk([]) | {"usage": self._usage()} | self._metrics()

    def _opening(self, choice: Choice) -> dict[str, Any]:
        entry: dict[str, Any] = {"index": choice.index, "logprobs": None, "finish_reason": None}
        if self.shape.is_chat:
            return entry | {"delta": {"role": "assistant", "content": choice.echo}}
        return entry | {"text": choice.echo}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        body = self._body(self.shape.chunk_object_name) | {"choices": choices}
        return body | ({"usage": self._usage()} if self.counts_in_chunks else {})

    def _body(self, object_name: str) -> dict[str, Any]:
        first = self.choices[0].generation.request
        return {
            "id": f"{self.shape.id_prefix}-{first.request_id}",
            "object": object_name,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.system_fingerprint,
            "seed": first.params.seed,
        }

    def _told(
        self, choice: Choice, piece: Piece
    ) -> tuple[dict[str, Any], str, list[dict[str, Any]]]:
        """A piece as what both shapes say of it, its content and its calls."""
        found = choice.read(piece)
        calls = choice.call_entries(found)
        return self._entry(choice, piece), found.content, calls

    def _entry(self, choice: Choice, piece: Piece) -> dict[str, Any]:
        """What both shapes say of a piece; counts it."""
        choice.num_tokens += len(piece.token_ids)
        choice.stats = piece.stats or choice.stats
        entry: dict[str, Any] = {
            "index": choice.index,
            "logprobs": self._logprobs(choice, piece),
            "finish_reason": choice.finish_reason(piece),
        }
        if piece.stop_reason is not None:
            entry["stop_reason"] = piece.stop_reason
        if self.return_token_ids:
            entry["token_ids"] = list(piece.token_ids)
            if piece.index == 0:
                entry["prompt_token_ids"] = list(choice.generation.request.prompt_token_ids)
        return entry

    def _logprobs(self, choice: Choice, piece: Piece) -> dict[str, Any] | None:
        if choice.generation.request.params.num_logprobs is None:
            return None
        shape = chat_logprobs if self.shape.is_chat else completion_logprobs
        return shape(piece, self.token_bytes)

    def _usage(self) -> dict[str, Any]:
        """A prompt counts once, however many choices it has. Nothing of it is ever cached yet."""
        num_prompt = sum(choice.num_prompt_tokens for choice in self.choices[:: self.n])
        num_tokens = sum(choice.num_tokens for choice in self.choices)
        return {
            "prompt_tokens": num_prompt,
            "completion_tokens": num_tokens,
            "total_tokens": num_prompt + num_tokens,
            "prompt_tokens_details": {"cached_tokens": 0},
        }

    def _metrics(self) -> dict[str, Any]:
        """Of a single choice only, as load generators expect it."""
        stats = self.choices[0].stats
        if len(self.choices) > 1 or stats is None or self.metrics is SpecMetrics.NONE:
            return {}
        told = speculation_metrics(stats, self.num_spec_tokens)
        return {"metrics": told | self.timing.milliseconds()}


def speculation_metrics(stats: RequestStats, num_spec_tokens: int) -> dict[str, Any]:
    """The payload that load generators know; the histogram is dense, 0..K."""
    missing = num_spec_tokens + 1 - len(stats.acceptance_histogram)
    drafted = stats.num_drafted
    return {
        "speculative_decoding": {
            "mean_acceptance_length": stats.mean_acceptance_length,
            "draft_acceptance_rate": stats.num_accepted / drafted if drafted else 0.0,
            "acceptance_histogram": [*stats.acceptance_histogram, *[0] * missing],
            "num_spec_steps": stats.num_proposed_rounds,
            "num_accepted_draft_tokens": stats.num_accepted,
            "num_draft_tokens": drafted,
            "num_spec_tokens": num_spec_tokens,
        },
        "queue_time_ms": stats.queue_s * 1000,
    }


def error_body(error: BaseException) -> dict[str, Any]:
    """OpenAI's shape."""
    status = status_of(error)
    message = {
        "message": public_message(error),
        "type": status.kind,
        "param": None,
        "code": status.http,
    }
    return {"error": message}
