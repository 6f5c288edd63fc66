"""Names that the flags of `specdec bench` share with its code. Imports nothing heavy."""

from __future__ import annotations

from enum import StrEnum

GRPC_ADDRESS = "127.0.0.1:9000"
"""Default address of `specdec serve` for gRPC."""


class Backend(StrEnum):
    """Route of the server."""

    OPENAI = "openai"
    """/v1/completions."""
    OPENAI_CHAT = "openai-chat"
    """/v1/chat/completions."""


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
    """Common words, drawn at random."""
