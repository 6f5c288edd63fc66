"""Bodies that the OpenAI routes answer with, and what was sent so far of each output."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from deployments.api.http.logprob_json import (
    Echo,
    Prompt,
    TokenBytes,
    chat_logprobs,
    completion_logprobs,
    prompt_logprobs,
    with_echo,
)
from deployments.api.http.sse import Frame, server_sent
from deployments.config.service import SpecMetrics
from deployments.ingress.answer import ReadAnswer
from deployments.ingress.generation_request import Generation
from deployments.ingress.output import OutputChunk
from deployments.observability.metrics.request_times import Timer
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The differences between the two completion routes."""

    id_prefix: str
    object_name: str
    chunk_object_name: str
    is_chat: bool


@dataclass(eq=False, slots=True)
class Timing:
    """Times of an answer's tokens as the ingress saw them, in seconds of one clock."""

    started: float = field(default_factory=time.monotonic)
    first: float | None = None
    last: float = 0.0
    num_tokens: int = 0

    def note(self, piece: OutputChunk) -> None:
        """Note that a chunk has come."""
        if piece.token_ids:
            self.last = time.monotonic()
            self.first = self.last if self.first is None else self.first
            self.num_tokens += len(piece.token_ids)

    def milliseconds(self) -> dict[str, float]:
        """Return the times. Empty before the first token."""
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


_OPEN: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": None}
"""A choice in a chunk that has text alone."""


@dataclass(eq=False, slots=True, kw_only=True)
class Response:
    """One answer in the making, whole or chunk by chunk. Each chunk is taken once."""

    shape: Shape
    choices: Sequence[Choice]
    """`n` choices for every prompt."""
    n: int
    model: str
    system_fingerprint: str
    num_spec_tokens: int
    """Maximum K of this request."""
    token_bytes: TokenBytes
    metrics: SpecMetrics
    return_token_ids: bool
    num_prompt_logprobs: int | None = None
    """Set if prompt log-probabilities were requested as a separate field."""
    counts_in_chunks: bool = False
    """Whether every chunk carries the usage so far."""
    warnings: Sequence[str] = ()
    """Warnings about unknown fields, for the whole answer or the first chunk of a stream."""
    created: int = field(default_factory=lambda: int(time.time()))
    timing: Timing = field(default_factory=Timing)
    respond: Timer = field(default_factory=Timer)
    """Time that building the response takes."""
    _frames: dict[tuple[int, str], Frame] = field(default_factory=dict)
    """Frames by choice and kind of text."""

    def whole(self, pieces: Sequence[OutputChunk]) -> dict[str, Any]:
        """Return all choices' outputs. `timing` was given the chunks as they came."""
        told: list[dict[str, Any]] = []
        prompts: list[Any] = []
        for choice, piece in zip(self.choices, pieces, strict=True):
            entry, found = self._told(choice, piece)
            prompts.append(self._prompt_logprobs(choice, piece))
            if self.shape.is_chat:
                entry["message"] = choice.message(found)
            else:
                entry["text"] = choice.echo.text + found.content
                if self.num_prompt_logprobs is not None:
                    entry["prompt_logprobs"] = prompts[-1]
            told.append(entry)
        body = self._body(self.shape.object_name)
        if self.shape.is_chat and self.num_prompt_logprobs is not None:
            body["prompt_logprobs"] = prompts[0]
        body |= {"choices": told, "usage": self._usage()} | self._metrics()
        return body | with_warnings(self.warnings)

    def first_chunks(self) -> list[dict[str, Any]]:
        """Return the chunks before every choice's first token, with its role or the prompt's
        echo."""
        return [
            self._chunk([self._opening(choice)])
            for choice in self.choices
            if self.shape.is_chat or (choice.opening and not choice.echo.tells_logprobs)
        ]

    def event(self, place: int, piece: OutputChunk) -> str:
        """Return `chunk` as an event. Nearly always it differs from the last one in its text
        alone."""
        with self.respond:
            choice = self.choices[place]
            if not self._is_text_alone(choice, piece):
                chunk = self.chunk(place, piece)
                if not choice.answer.is_plain and says_nothing(chunk):
                    return ""
                return "".join(map(server_sent, with_calls_before_end(chunk)))
            self.timing.note(piece)
            choice.num_tokens = piece.index + len(piece.token_ids)
            if choice.answer.is_plain:
                return self._frame(place, "content").with_text(piece.text)
            return self._event_of(place, choice.answer.read(piece))

    def _is_text_alone(self, choice: Choice, piece: OutputChunk) -> bool:
        return (
            piece.finish_reason is None
            and bool(piece.text)
            and choice.generation.request.params.num_logprobs is None
            and not (self.return_token_ids or self.counts_in_chunks or self.warnings)
        )

    def _event_of(self, place: int, found: Found) -> str:
        """Return what was read as an event; empty if it is nothing."""
        if found.calls or (found.content and found.reasoning):
            entry = _OPEN | {"index": self.choices[place].index}
            return server_sent(self._chunk([entry | {"delta": self.choices[place].delta(found)}]))
        if found.reasoning:
            return self._frame(place, *REASONING_NAMES).with_text(found.reasoning)
        return self._frame(place, "content").with_text(found.content) if found.content else ""

    def _frame(self, place: int, *names: str) -> Frame:
        """Return the event whose texts of these names are to be filled in."""
        frame = self._frames.get((place, names[0]))
        if frame is None:
            entry = _OPEN | {"index": self.choices[place].index}
            texts = dict.fromkeys(names, "")
            entry |= {"delta": texts} if self.shape.is_chat else {"text": ""}
            frame = Frame.around(self._chunk([entry]), len(names))
            self._frames[place, names[0]] = frame
        return frame

    def chunk(self, place: int, piece: OutputChunk) -> dict[str, Any]:
        self.timing.note(piece)
        entry, found = self._told(self.choices[place], piece)
        if self.shape.is_chat:
            entry["delta"] = self.choices[place].delta(found)
        else:
            entry["text"] = self._late_echo(place, piece) + found.content
        return self._chunk([entry])

    def _late_echo(self, place: int, piece: OutputChunk) -> str:
        """Return the echo if it had to wait for log-probabilities."""
        echo = self.choices[place].echo
        return echo.text if echo.tells_logprobs and piece.index == 0 else ""

    def usage_chunk(self) -> dict[str, Any]:
        return self._chunk([]) | {"usage": self._usage()} | self._metrics()

    def _opening(self, choice: Choice) -> dict[str, Any]:
        entry = _OPEN | {"index": choice.index}
        if self.shape.is_chat:
            return entry | {"delta": {"role": "assistant", "content": choice.opening}}
        return entry | {"text": choice.opening}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        body = self._body(self.shape.chunk_object_name) | {"choices": choices}
        body |= {"usage": self._usage()} if self.counts_in_chunks else {}
        body |= with_warnings(self.warnings)
        self.warnings = ()
        return body

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

    def _told(self, choice: Choice, piece: OutputChunk) -> tuple[dict[str, Any], Found]:
        """Count a chunk. Return the fields that both shapes have, and what was read from it."""
        found = choice.answer.read(piece)
        choice.num_tokens = piece.index + len(piece.token_ids)
        choice.stats = piece.stats or choice.stats
        entry: dict[str, Any] = {
            "index": choice.index,
            "logprobs": self._logprobs(choice, piece),
            "finish_reason": choice.finish_reason(piece),
        }
        if piece.stop_reason is not None:
            entry["stop_reason"] = piece.stop_reason
        if self.return_token_ids:
            if not choice.answer.hides_tokens:
                entry["token_ids"] = list(piece.token_ids)
            if piece.index == 0:
                entry["prompt_token_ids"] = list(choice.generation.request.prompt_token_ids)
        return entry, found

    def _logprobs(self, choice: Choice, piece: OutputChunk) -> dict[str, Any] | None:
        count = choice.generation.request.params.num_logprobs
        if count is None or choice.answer.hides_tokens:
            return None
        if self.shape.is_chat:
            return chat_logprobs(piece, self.token_bytes)
        told = completion_logprobs(piece, self.token_bytes, len(choice.echo.text))
        prompt = choice.scored_prompt(piece) if choice.echo.tells_logprobs else None
        if prompt is None or piece.index > 0:
            return told
        return with_echo(prompt, choice.echo, count, told, self.token_bytes)

    def _prompt_logprobs(self, choice: Choice, piece: OutputChunk) -> list[Any] | None:
        prompt = choice.scored_prompt(piece)
        if self.num_prompt_logprobs is None or prompt is None:
            return None
        return prompt_logprobs(prompt, self.num_prompt_logprobs, self.token_bytes)

    def _usage(self) -> dict[str, Any]:
        """Return the usage. A prompt counts once, however many choices it has.

        The cached part of the prompt is known at the end. The first of its choices reports it,
        because the others find what that one has left.
        """
        asked = self.choices[:: self.n]
        num_prompt = sum(choice.num_prompt_tokens for choice in asked)
        num_cached = sum(choice.stats.num_cached_tokens for choice in asked if choice.stats)
        num_tokens = sum(choice.num_tokens for choice in self.choices)
        usage: dict[str, Any] = {
            "prompt_tokens": num_prompt,
            "completion_tokens": num_tokens,
            "total_tokens": num_prompt + num_tokens,
            "prompt_tokens_details": {"cached_tokens": num_cached},
        }
        if any(choice.answer.counts_reasoning for choice in self.choices):
            count = sum(choice.answer.num_reasoning_tokens for choice in self.choices)
            usage["completion_tokens_details"] = {"reasoning_tokens": count}
        return usage

    def _metrics(self) -> dict[str, Any]:
        """Return the metrics of a single choice only, as load generators expect them."""
        stats = self.choices[0].stats
        if len(self.choices) > 1 or stats is None or self.metrics is SpecMetrics.NONE:
            return {}
        told = speculation_metrics(stats, self.num_spec_tokens)
        if self.metrics is SpecMetrics.DETAILED:
            told["speculative_decoding"] |= {
                "per_step_drafted": [drafted for drafted, _ in stats.steps],
                "per_step_accepted": [accepted for _, accepted in stats.steps],
            }
        return {"metrics": told | self.timing.milliseconds()}


def with_warnings(warnings: Sequence[str]) -> dict[str, Any]:
    """Return the field of a response that carries `warnings`; nothing if there are none."""
    return {"warnings": list(warnings)} if warnings else {}


def speculation_metrics(stats: RequestStats, num_spec_tokens: int) -> dict[str, Any]:
    """Return the payload that load generators know. The histogram is dense, 0..K."""
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
