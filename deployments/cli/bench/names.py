"""The words that the flags of `specdec bench` share with what they ask for; nothing heavy."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

HTTP_URL = "http://127.0.0.1:8000"
GRPC_ADDRESS = "127.0.0.1:9000"
"""Where `specdec serve` listens."""

METRICS = {
    "ttft": "Time to First Token",
    "tpot": "Time per Output Token (excl. 1st token)",
    "itl": "Inter-token Latency",
    "e2el": "End-to-end Latency",
}
"""Latencies by name, in the order in which they are told."""
GOALS = ("ttft", "tpot", "e2el")
"""Those that a request has one of."""


class Backend(StrEnum):
    """What is spoken with the server."""

    OPENAI = "openai"
    """/v1/completions."""
    OPENAI_CHAT = "openai-chat"
    """/v1/chat/completions."""
    GRPC = "grpc"
    """specdec.v1.GenerationService."""


class DatasetName(StrEnum):
    """Where prompts come from."""

    SPEC_BENCH = "spec_bench"
    """A file, taken evenly from its categories."""
    COPYING = "copying"
    """Chats with text to copy, which ship with this package; taken evenly from their categories."""
    CUSTOM = "custom"
    """A file, from its beginning."""
    RANDOM = "random"


class Vocabulary(NamedTuple):
    """Ids that random prompts are made of, both ends included."""

    first: int
    last: int
