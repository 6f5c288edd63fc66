"""Names that a caller gives to formats of answers. They are vLLM's."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from deployments.text.answers.call_formats import CALL_FORMATS
from deployments.text.answers.reasoning_formats import REASONING_FORMATS
from specdec_core.errors import ModelNotSupportedError

AUTO = "auto"
"""Flag value that leaves the choice to the model's files."""
NONE = "none"
"""Flag value that switches reading off."""

_CALL_ALIASES = {
    "qwen3_xml": "qwen3_coder",
    "mimo": "qwen3_coder",
    "step3p5": "qwen3_coder",
    "llama4_json": "llama3_json",
    "poolside_v1": "glm47",
    "granite4": "hermes",
}
_REASONING_ALIASES = {
    "mimo": "qwen3",
    "nemotron_v3": "qwen3",
    "step3p5": "qwen3",
    "glm47": "glm45",
    "poolside_v1": "glm45",
    "deepseek_v4": "deepseek_v3",
    "holo2": "deepseek_v3",
}
ALIASES: Mapping[str, Mapping[str, str]] = {
    "tool_call_parser": _CALL_ALIASES,
    "reasoning_parser": _REASONING_ALIASES,
}
"""vLLM's other names of a format, by option."""
_KNOWN: Mapping[str, Mapping[str, Any]] = {
    "tool_call_parser": CALL_FORMATS,
    "reasoning_parser": REASONING_FORMATS,
}


def check_parser(option: str, name: str) -> str:
    """Return the name of the format that a caller names, perhaps by an alias.

    Raises ModelNotSupportedError if the option has no format of this name.
    """
    formats, aliases = _KNOWN[option], ALIASES[option]
    if name in formats or name in (AUTO, NONE):
        return name
    if name in aliases:
        return aliases[name]
    names = [AUTO, NONE, *sorted([*formats, *aliases])]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ModelNotSupportedError(
        f"{name!r} is not a known format.{hint} Known formats: {', '.join(names)}"
    )
