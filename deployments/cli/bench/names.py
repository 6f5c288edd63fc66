"""Names that the flags of `specdec bench` share with its code. Imports nothing heavy."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

HTTP_URL = "http://127.0.0.1:8000"
GRPC_ADDRESS = "127.0.0.1:9000"
"""Default addresses of `specdec serve`."""

METRICS = {
    "ttft": "Time to First Token",
    "tpot": "Time per Output Token (excl. 1st token)",
    "itl": "Inter-token Latency",
    "e2el": "End-to-end Latency",
}
"""Latencies by name, in the order of the report."""
GOALS = ("ttft", "tpot", "e2el")
"""Latencies of which a request has exactly one."""


class Backend(StrEnum):
    """Protocol of the server."""

    OPENAI = "openai"
    """/v1/completions."""
    OPENAI_CHAT = "openai-chat"
    """/v1/chat/completions."""
    GRPC = "grpc"
    """specdec.v1.GenerationService."""


class DatasetName(StrEnum):
    """Source of the prompts."""

    SPEC_BENCH = "spec_bench"
    """A file, taken evenly from its categories."""
    COPYING = "copying"
    """Chats with text to copy, which ship with this package. They are taken evenly from their
    categories."""
    CUSTOM = "custom"
    """A file, from its beginning."""
    RANDOM = "random"


class Vocabulary(NamedTuple):
    """Range of token IDs for random prompts, both ends included."""

    first: int
    last: int
