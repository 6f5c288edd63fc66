"""Bodies that the OpenAI routes answer with."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from deployments.config import SpecMetrics
from deployments.errors import public_message, status_of
from deployments.generation import Generation
from deployments.logprob_json import TokenBytes, chat_logprobs, completion_logprobs
from deployments.output import Piece
from specdec_core.request import RequestStats


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What differs between the two completion routes."""

    id_prefix: str
    object_name: str
    chunk_object_name: str
    is_chat: bool


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


@dataclass(eq=False, slots=True, kw_only=True)
class Response:
    """One answer in the making: whole, or chunk by chunk."""

    shape: Shape
    generation: Generation
    model: str
    system_fingerprint: str
    num_spec_tokens: int
    """K that is aimed at for this request."""
    token_bytes: TokenBytes
    metrics: SpecMetrics
    return_token_ids: bool
    created: int = field(default_factory=lambda: int(time.time()))
    num_tokens: int = 0
    stats: RequestStats | None = None

    def whole(self, piece: Piece) -> dict[str, Any]:
        choice = self._choice(piece)
        if self.shape.is_chat:
            choice["message"] = {"role": "assistant", "content": piece.text}
        else:
            choice["text"] = piece.text
        body = self._body(self.shape.object_name)
        return body | {"choices": [choice], "usage": self._usage()} | self._metrics()

    def role_chunk(self) -> dict[str, Any]:
        """The first chunk of a chat answer."""
        choice = {
            "index": 0,
            "delta": {"role": "assistant", "content": ""},
            "finish_reason": None,
        }
        return self._body(self.shape.chunk_object_name) | {"choices": [choice]}

    def chunk(self, piece: Piece) -> dict[str, Any]:
        choice = self._choice(piece)
        if self.shape.is_chat:
            choice["delta"] = {"content": piece.text} if piece.text else {}
        else:
            choice["text"] = piece.text
        return self._body(self.shape.chunk_object_name) | {"choices": [choice]}

    def usage_chunk(self) -> dict[str, Any]:
        body = self._body(self.shape.chunk_object_name)
        return body | {"choices": [], "usage": self._usage()} | self._metrics()

    def _body(self, object_name: str) -> dict[str, Any]:
        return {
            "id": f"{self.shape.id_prefix}-{self.generation.request.request_id}",
            "object": object_name,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.system_fingerprint,
            "seed": self.generation.request.params.seed,
        }

    def _choice(self, piece: Piece) -> dict[str, Any]:
        """What both forms say of a piece, counted once: a piece is told once."""
        self.num_tokens += len(piece.token_ids)
        self.stats = piece.stats or self.stats
        reason = piece.finish_reason.value if piece.finish_reason else None
        logprobs = self._logprobs(piece)
        choice: dict[str, Any] = {"index": 0, "logprobs": logprobs, "finish_reason": reason}
        if piece.stop_reason is not None:
            choice["stop_reason"] = piece.stop_reason
        if self.return_token_ids:
            choice["token_ids"] = list(piece.token_ids)
            if piece.index == 0:
                choice["prompt_token_ids"] = list(self.generation.request.prompt_token_ids)
        return choice

    def _logprobs(self, piece: Piece) -> dict[str, Any] | None:
        if self.generation.request.params.num_logprobs is None:
            return None
        shape = chat_logprobs if self.shape.is_chat else completion_logprobs
        return shape(piece, self.token_bytes)

    def _usage(self) -> dict[str, int]:
        num_prompt = len(self.generation.request.prompt_token_ids)
        return {
            "prompt_tokens": num_prompt,
            "completion_tokens": self.num_tokens,
            "total_tokens": num_prompt + self.num_tokens,
        }

    def _metrics(self) -> dict[str, Any]:
        if self.stats is None or self.metrics is SpecMetrics.NONE:
            return {}
        return {"metrics": speculation_metrics(self.stats, self.num_spec_tokens)}


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
