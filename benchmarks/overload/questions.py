"""What is asked of a service under load, and how each request may end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

Ids = tuple[int, ...]

_FIRST_ID = 5
"""From here to 300 every tokenizer has ordinary ids."""


class Way(StrEnum):
    """How a request comes."""

    HTTP = "http"
    HTTP_STREAM = "http stream"
    GRPC = "grpc stream"


class Verdict(StrEnum):
    """How a request ended."""

    ANSWERED = "answered"
    REFUSED = "refused"
    """In the words of the protocol: 429 or RESOURCE_EXHAUSTED, with a time to come back."""
    FAILED = "failed"
    """In any other way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where a service listens."""

    host: str = "127.0.0.1"
    port: int
    grpc_port: int
    model: str
    api_key: str | None = None

    @property
    def grpc_address(self) -> str:
        return f"{self.host}:{self.grpc_port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One greedy request."""

    way: Way
    prompt: Ids
    max_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one request ended."""

    question: Question
    verdict: Verdict
    seconds: float = 0.0
    token_ids: Ids = ()
    why: str = ""
    """Of a refusal or failure."""
    retry_after_s: float | None = None


def prompts(count: int) -> list[Ids]:
    """Few and short, so that plain decoding of each is soon asked; no two begin alike."""
    return [
        tuple(range(_FIRST_ID + number, _FIRST_ID + number + 8 + 3 * number))
        for number in range(count)
    ]


def mixture(num_http: int, num_grpc: int, given: Sequence[Ids], max_tokens: int) -> list[Question]:
    """Every second HTTP request streams; ways and prompts are evenly mixed."""
    ways = [Way.HTTP_STREAM if place % 2 else Way.HTTP for place in range(num_http)]
    ways += [Way.GRPC] * num_grpc
    spread = _interleaved(ways, num_http)
    return [
        Question(way=way, prompt=given[place % len(given)], max_tokens=max_tokens)
        for place, way in enumerate(spread)
    ]


def _interleaved(ways: list[Way], num_first: int) -> list[Way]:
    places = [place / max(1, num_first) for place in range(num_first)]
    num_second = len(ways) - num_first
    places += [place / max(1, num_second) for place in range(num_second)]
    return [way for _, _, way in sorted(zip(places, range(len(ways)), ways, strict=True))]
