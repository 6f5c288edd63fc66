"""The mixed load: both protocols, whole and streamed, greedy and sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from deployments.cli.generate.prompt_file import PromptLine
from deployments.cli.generate.prompt_text import Conversation, first_messages
from specdec.v1 import generation_pb2 as pb


class Way(StrEnum):
    """How a request is sent and answered."""

    CHAT = "chat"
    CHAT_STREAM = "chat stream"
    COMPLETION = "completion"
    COMPLETION_STREAM = "completion stream"
    GRPC = "GenerateOnce"
    GRPC_STREAM = "Generate"

    @property
    def is_streamed(self) -> bool:
        return self in (Way.CHAT_STREAM, Way.COMPLETION_STREAM, Way.GRPC_STREAM)

    @property
    def is_grpc(self) -> bool:
        return self in (Way.GRPC, Way.GRPC_STREAM)

    @property
    def is_chat(self) -> bool:
        return self in (Way.CHAT, Way.CHAT_STREAM, Way.GRPC_STREAM)


_SAMPLINGS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 0.8, "top_p": 0.95},
    {"temperature": 0.0, "repetition_penalty": 1.1},
    {"temperature": 1.0, "top_k": 40, "frequency_penalty": 0.2},
)
"""Penalties count what was emitted: a replay that lost count would choose other tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request; the same every time that it is sent."""

    number: int
    way: Way
    messages: Conversation
    sampling: dict[str, Any]

    @property
    def path(self) -> str:
        return "/v1/chat/completions" if self.way.is_chat else "/v1/completions"

    def body(self) -> dict[str, Any]:
        given = {"messages": self.messages} if self.way.is_chat else {"prompt": self._text}
        return {
            **given,
            **self.sampling,
            "stream": self.way.is_streamed,
            "return_token_ids": True,
        }

    def message(self) -> pb.GenerateRequest:
        message = pb.GenerateRequest(sampling=pb.SamplingParams(**self.sampling))
        if self.way.is_chat:
            message.chat.messages.extend(pb.ChatMessage(**line) for line in self.messages)
        else:
            message.prompt = self._text
        return message

    @property
    def _text(self) -> str:
        return self.messages[-1]["content"]


def mixed(lines: Sequence[PromptLine], count: int, max_tokens: int) -> list[Asked]:
    """`count` requests: the ways in turn, and each of them with every sampling in turn."""
    ways = tuple(Way)
    return [
        Asked(
            number=number,
            way=ways[number % len(ways)],
            messages=first_messages(lines[number % len(lines)]),
            sampling={
                **_SAMPLINGS[number // len(ways) % len(_SAMPLINGS)],
                "seed": number,
                "max_tokens": max_tokens,
            },
        )
        for number in range(count)
    ]
