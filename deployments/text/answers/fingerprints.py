"""Texts in chat templates that show in which format a model answers, as data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Texts of a chat template that belong to one format."""

    name: str
    """vLLM's name of the format. It may be one that this project does not read."""
    patterns: tuple[str, ...]
    """Regular expressions. All of them match the template's source."""

    def matches(self, source: str) -> bool:
        return all(re.search(pattern, source) for pattern in self.patterns)


_BAR = "\N{FULLWIDTH VERTICAL LINE}"
_DEEPSEEK_CALL = f"<{_BAR}tool▁sep{_BAR}>"
_DEEPSEEK_TURN = f"<{_BAR}Assistant{_BAR}>"
_NEXT_PRINT = r"['\"] -\}\}\s*\{\{- ['\"]"
"""End of one Jinja expression and beginning of the next, which print two adjacent texts."""

CALL_FINGERPRINTS: Sequence[Fingerprint] = (
    Fingerprint("deepseek_v4", ("DSML", r"\btool_calls>")),
    Fingerprint("deepseek_v32", ("DSML",)),
    Fingerprint("deepseek_v3", (_DEEPSEEK_CALL, "```json")),
    Fingerprint("deepseek_v31", (_DEEPSEEK_CALL,)),
    Fingerprint("kimi_k2", (r"<\|tool_calls_section_begin\|>",)),
    Fingerprint("minimax_m2", ("<minimax:tool_call>",)),
    Fingerprint("openai", (r"<\|channel\|>commentary", r"<\|call\|>")),
    Fingerprint("gemma4", (r"<\|tool_call>call:",)),
    Fingerprint("glm47", ("<tool_call>", rf"</arg_key>(?:{_NEXT_PRINT})?<arg_value>")),
    Fingerprint("glm45", ("<tool_call>", "<arg_key>")),
    Fingerprint("qwen3_coder", ("<tool_call>", "<function=", "<parameter=")),
    Fingerprint("seed_oss", ("<seed:tool_call>",)),
    Fingerprint("functionary", ("<function=",)),
    Fingerprint("minicpm5", ("<function name=",)),
    Fingerprint("granite", (r"<\|tool_call\|>",)),
    Fingerprint("mistral", (r"\[TOOL_CALLS\]",)),
    Fingerprint("hermes", (r'<tool_call>[^<]{0,40}\{\\?"name',)),
    Fingerprint("lfm2", (r"<\|tool_call_start\|>",)),
    Fingerprint("llama3_json", (r'"name": function name, "parameters": dictionary',)),
    Fingerprint("pythonic", (r"\[func_name1\(param",)),
)
"""Formats of tool calls. The first one that matches is the template's."""

REASONING_FINGERPRINTS: Sequence[Fingerprint] = (
    Fingerprint("openai_gptoss", (r"<\|channel\|>analysis",)),
    Fingerprint("gemma4", (r"<\|channel>thought",)),
    Fingerprint("mistral", (r"\[THINK\]",)),
    Fingerprint("seed_oss", ("<seed:think>",)),
    Fingerprint("granite", ("</think>", "<response></response>")),
    Fingerprint("kimi_k2", ("</think>", r"<\|im_middle\|>")),
    Fingerprint("minimax_m2", ("</think>", "<minimax:tool_call>")),
    Fingerprint("glm45", ("</think>", "<arg_key>")),
    Fingerprint("deepseek_v3", ("</think>", _DEEPSEEK_TURN, "thinking is defined")),
    Fingerprint("qwen3", ("</think>", r"<\|im_start\|>")),
    Fingerprint("deepseek_r1", ("</think>",)),
)
"""Formats of reasoning. The first one that matches is the template's."""


def format_shown(source: str, fingerprints: Sequence[Fingerprint]) -> str | None:
    """Return the name of the format that a chat template shows."""
    return next((one.name for one in fingerprints if one.matches(source)), None)
