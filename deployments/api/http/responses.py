"""Bodies that the OpenAI routes answer with, and what was sent so far of each output."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
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
from deployments.ingress.generation_request import Generation
from deployments.ingress.output import OutputChunk, ReadAnswer
from deployments.observability.metrics.request_times import Timer
from deployments.text.answers.reading import AnswerDelta
from specdec_core.request import Request, RequestStats

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
    def num_prompt_tokens(self) -> int:
        return len(self.generation.request.prompt_token_ids)

    @property
    def early_echo(self) -> str:
        """The echo with which a stream begins. A client that resumes already has it."""
        is_left_out = self.echo.has_logprobs or self.generation.request.resume_token_ids
        return "" if is_left_out else self.echo.text

    def scored_prompt(self, chunk: OutputChunk) -> Prompt | None:
        """Return the scored prompt. None if the answer ended before it came."""
        ids = self.generation.request.prompt_token_ids
        is_scored = len(chunk.prompt_logprobs) == len(ids) - 1
        return Prompt(ids, chunk.prompt_logprobs) if is_scored else None

    def message(self, parsed: AnswerDelta) -> dict[str, Any]:
        """Return the message of a whole answer.

        Its content is null if the answer has calls or reasoning, and no other text.
        """
        is_null = bool(parsed.calls) or self.answer.has_reasoned
        message = {"role": "assistant", "content": None if is_null else ""} | self.delta(parsed)
        for call in message.get("tool_calls", ()):
            del call["index"]  # OpenAI numbers calls in chunks only
        return message

    def delta(self, parsed: AnswerDelta) -> dict[str, Any]:
        """Return what a chunk adds to the message; empty if that is nothing."""
        delta = {"content": parsed.content} if parsed.content else {}
        if parsed.reasoning or parsed.calls:
            return self._around_content(delta, parsed)
        return delta

    def _around_content(self, content: dict[str, Any], parsed: AnswerDelta) -> dict[str, Any]:
        """Return the message's new content with the reasoning before it and the calls after it."""
        reasoning = dict.fromkeys(REASONING_NAMES, parsed.reasoning) if parsed.reasoning else {}
        calls = {"tool_calls": self._calls(parsed)} if parsed.calls else {}
        return reasoning | content | calls

    def token_id_fields(self, chunk: OutputChunk) -> dict[str, Any]:
        """Return the fields of a chunk's token IDs, and with the first those of the prompt."""
        ids: dict[str, Any] = {}
        if not self.answer.hides_tokens:
            ids["token_ids"] = list(chunk.token_ids)
        if chunk.index == 0:
            ids["prompt_token_ids"] = list(self.generation.request.prompt_token_ids)
        return ids

    def _calls(self, parsed: AnswerDelta) -> list[dict[str, Any]]:
        """Return the calls in OpenAI's shape, numbered through the answer."""
        first = self.answer.num_calls - len(parsed.calls)
        return [
            {
                "index": first + position,
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for position, call in enumerate(parsed.calls)
        ]


def says_nothing(chunk: dict[str, Any]) -> bool:
    """Return whether a chat's client learns nothing from a chunk."""
    (entry,) = chunk["choices"]
    is_over = entry["finish_reason"] is not None
    extras = chunk.keys() & {"usage", "warnings"} or entry.keys() & {"token_ids"}
    return not (entry["delta"] or entry["logprobs"] or is_over or extras)


def _with_calls_before_end(chunk: dict[str, Any]) -> str:
    """Return a chat's chunk as an event; as two if it has both calls and the finish reason.

    OpenAI's clients take a call for complete when a later chunk has the finish reason.
    """
    entry = chunk["choices"][0]
    if entry["finish_reason"] is None or "tool_calls" not in entry["delta"]:
        return server_sent(chunk)
    ends = {name: entry[name] for name in ("finish_reason", "stop_reason") if name in entry}
    last = {"index": entry["index"], "delta": {}, "logprobs": None} | ends
    first = {name: value for name, value in entry.items() if name != "stop_reason"}
    first["finish_reason"] = None
    return server_sent(chunk | {"choices": [first]}) + server_sent(chunk | {"choices": [last]})


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

    def note(self, chunk: OutputChunk) -> None:
        """Note that a chunk has come."""
        if chunk.token_ids:
            self.last = time.monotonic()
            self.first = self.last if self.first is None else self.first
            self.num_tokens += len(chunk.token_ids)

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
    num_spec_tokens: Callable[[Request], int]
    """Returns the maximum K of a request."""
    token_bytes: TokenBytes
    metrics: SpecMetrics
    return_token_ids: bool
    created: int
    """Unix time in seconds."""
    num_prompt_logprobs: int | None = None
    """Set if prompt log-probabilities were requested as a separate field."""
    counts_in_chunks: bool = False
    """Whether every chunk carries the usage so far."""
    ends_with_usage: bool = False
    """Whether a stream's last chunk is the usage."""
    warnings: Sequence[str] = ()
    """Warnings about unknown fields, for the whole answer or the first chunk of a stream."""
    timing: Timing = field(default_factory=Timing)
    """A stream without usage does not return it, and notes no chunk."""
    respond: Timer = field(default_factory=Timer)
    """Time that building the response takes on the event loop, of all answers together."""
    _frames: dict[tuple[int, str], Frame] = field(default_factory=dict)
    """Frames by choice and kind of text."""

    def whole(self, chunks: Sequence[OutputChunk]) -> dict[str, Any]:
        """Return all choices' outputs. `timing` was given the chunks as they came."""
        entries: list[dict[str, Any]] = []
        prompts: list[Any] = []
        for choice, chunk in zip(self.choices, chunks, strict=True):
            entry, parsed = self._read(choice, chunk)
            prompts.append(self._prompt_logprobs(choice, chunk))
            if self.shape.is_chat:
                entry["message"] = choice.message(parsed)
            else:
                entry["text"] = choice.echo.text + parsed.content
                if self.num_prompt_logprobs is not None:
                    entry["prompt_logprobs"] = prompts[-1]
            entries.append(entry)
        body = self._body(self.shape.object_name)
        if self.shape.is_chat and self.num_prompt_logprobs is not None:
            body["prompt_logprobs"] = prompts[0]
        body |= {"choices": entries, "usage": self._usage()} | self._metrics()
        return body | with_warnings(self.warnings)

    def first_chunks(self) -> Iterator[dict[str, Any]]:
        """Yield a chunk before every choice's first token, with its role or the prompt's echo."""
        for choice in self.choices:
            entry = _OPEN | {"index": choice.index}
            if self.shape.is_chat:
                yield self._chunk([entry | {"delta": {"role": "assistant", "content": ""}}])
            elif choice.early_echo:
                yield self._chunk([entry | {"text": choice.early_echo}])

    def event(self, position: int, chunk: OutputChunk) -> str:
        """Return `chunk` as an event, or as two; empty if it tells the client nothing."""
        if self.ends_with_usage:
            self.timing.note(chunk)
        choice = self.choices[position]
        # Nearly always the event differs from the last one in its text.
        is_text_alone = (
            chunk.finish_reason is None
            and chunk.text
            and choice.generation.request.params.num_logprobs is None
            and not (self.return_token_ids or self.counts_in_chunks or self.warnings)
        )
        if is_text_alone:
            choice.num_tokens = chunk.index + len(chunk.token_ids)
            if choice.answer.is_plain:
                return self._frame(position, "content").with_text(chunk.text)
            return self._event_of(position, choice.answer.read(chunk))
        body = self.chunk(position, chunk)
        if choice.answer.is_plain:
            return server_sent(body)
        return "" if says_nothing(body) else _with_calls_before_end(body)

    def _event_of(self, position: int, parsed: AnswerDelta) -> str:
        """Return what was read as an event; empty if it is nothing."""
        if parsed.calls or (parsed.content and parsed.reasoning):
            choice = self.choices[position]
            entry = _OPEN | {"index": choice.index, "delta": choice.delta(parsed)}
            return server_sent(self._chunk([entry]))
        if parsed.reasoning:
            return self._frame(position, *REASONING_NAMES).with_text(parsed.reasoning)
        return self._frame(position, "content").with_text(parsed.content) if parsed.content else ""

    def _frame(self, position: int, *names: str) -> Frame:
        """Return the event whose texts of these names are to be filled in."""
        frame = self._frames.get((position, names[0]))
        if frame is None:
            texts = {"delta": dict.fromkeys(names, "")} if self.shape.is_chat else {"text": ""}
            entry = _OPEN | {"index": self.choices[position].index} | texts
            frame = Frame.around(self._chunk([entry]), len(names))
            self._frames[position, names[0]] = frame
        return frame

    def chunk(self, position: int, chunk: OutputChunk) -> dict[str, Any]:
        entry, parsed = self._read(self.choices[position], chunk)
        if self.shape.is_chat:
            entry["delta"] = self.choices[position].delta(parsed)
        else:
            entry["text"] = self._late_echo(position, chunk) + parsed.content
        return self._chunk([entry])

    def _late_echo(self, position: int, chunk: OutputChunk) -> str:
        """Return the echo if it had to wait for log-probabilities."""
        echo = self.choices[position].echo
        return echo.text if echo.has_logprobs and chunk.index == 0 else ""

    def usage_chunk(self) -> dict[str, Any]:
        return self._chunk([]) | {"usage": self._usage()} | self._metrics()

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        body = self._body(self.shape.chunk_object_name) | {"choices": choices}
        if self.counts_in_chunks:
            body["usage"] = self._usage()
        if self.warnings:
            body["warnings"] = list(self.warnings)
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

    def _read(self, choice: Choice, chunk: OutputChunk) -> tuple[dict[str, Any], AnswerDelta]:
        """Count a chunk. Return the fields that both shapes have, and what was read from it."""
        parsed = choice.answer.read(chunk)
        is_called = choice.answer.ends_with_calls(chunk)
        choice.num_tokens = chunk.index + len(chunk.token_ids)
        choice.stats = chunk.stats or choice.stats
        count = choice.generation.request.params.num_logprobs
        entry: dict[str, Any] = {
            "index": choice.index,
            "logprobs": None if count is None else self._logprobs(choice, chunk, count),
            "finish_reason": "tool_calls" if is_called else chunk.finish_reason,
        }
        if chunk.stop_reason is not None:
            entry["stop_reason"] = chunk.stop_reason
        if self.return_token_ids:
            entry |= choice.token_id_fields(chunk)
        return entry, parsed

    def _logprobs(self, choice: Choice, chunk: OutputChunk, count: int) -> dict[str, Any] | None:
        if choice.answer.hides_tokens:
            return None
        if self.shape.is_chat:
            return chat_logprobs(chunk, self.token_bytes)
        logprobs = completion_logprobs(chunk, self.token_bytes, len(choice.echo.text))
        prompt = choice.scored_prompt(chunk) if choice.echo.has_logprobs else None
        if prompt is None or chunk.index > 0:
            return logprobs
        return with_echo(prompt, choice.echo, count, logprobs, self.token_bytes)

    def _prompt_logprobs(self, choice: Choice, chunk: OutputChunk) -> list[Any] | None:
        prompt = choice.scored_prompt(chunk)
        if self.num_prompt_logprobs is None or prompt is None:
            return None
        return prompt_logprobs(prompt, self.num_prompt_logprobs, self.token_bytes)

    def _usage(self) -> dict[str, Any]:
        """Return the usage. A prompt counts once, however many choices it has.

        The cached part of the prompt is known at the end. The first of its choices reports it,
        because the others find what that one has left.
        """
        firsts = self.choices[:: self.n]
        num_prompt = sum(choice.num_prompt_tokens for choice in firsts)
        num_cached = sum(choice.stats.num_cached_tokens for choice in firsts if choice.stats)
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
        num_spec_tokens = self.num_spec_tokens(self.choices[0].generation.request)
        metrics = speculation_metrics(stats, num_spec_tokens)
        if self.metrics is SpecMetrics.DETAILED:
            metrics["speculative_decoding"] |= {
                "per_step_drafted": [drafted for drafted, _ in stats.steps],
                "per_step_accepted": [accepted for _, accepted in stats.steps],
            }
        return {"metrics": metrics | self.timing.milliseconds()}


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
