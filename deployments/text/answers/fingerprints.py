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
    models: str
    """Models whose published templates show the format."""

    def matches(self, source: str) -> bool:
        return all(re.search(pattern, source) for pattern in self.patterns)


_BAR = "\N{FULLWIDTH VERTICAL LINE}"
_DEEPSEEK_CALL = f"<{_BAR}tool▁sep{_BAR}>"
_DEEPSEEK_TURN = f"<{_BAR}Assistant{_BAR}>"
_NEXT_PRINT = r"['\"] -\}\}\s*\{\{- ['\"]"
"""End of one Jinja expression and beginning of the next, which print two adjacent texts."""

CALL_FINGERPRINTS: Sequence[Fingerprint] = (
    Fingerprint("deepseek_v4", ("DSML", r"\btool_calls>"), models="DeepSeek V4"),
    Fingerprint("deepseek_v32", ("DSML",), models="DeepSeek V3.2"),
    Fingerprint(
        "deepseek_v3",
        (_DEEPSEEK_CALL, "```json"),
        models="DeepSeek V3, R1 and its distilled models",
    ),
    Fingerprint("deepseek_v31", (_DEEPSEEK_CALL,), models="DeepSeek V3.1"),
    Fingerprint("kimi_k2", (r"<\|tool_calls_section_begin\|>",), models="Kimi K2"),
    Fingerprint("minimax_m2", ("<minimax:tool_call>",), models="MiniMax M2"),
    Fingerprint("openai", (r"<\|channel\|>commentary", r"<\|call\|>"), models="gpt-oss"),
    Fingerprint("gemma4", (r"<\|tool_call>call:",), models="Gemma 4"),
    Fingerprint(
        "glm47",
        ("<tool_call>", rf"</arg_key>(?:{_NEXT_PRINT})?<arg_value>"),
        models="GLM 4.7, Spark 2.5, Laguna S",
    ),
    Fingerprint(
        "glm45", ("<tool_call>", "<arg_key>"), models="GLM 4.5 and 4.6, Laguna XS, Ling 3.0 flash"
    ),
    Fingerprint(
        "qwen3_coder",
        ("<tool_call>", "<function=", "<parameter="),
        models="Qwen3-Coder, Qwen3.5, Nemotron 3, Step 3.5",
    ),
    Fingerprint("seed_oss", ("<seed:tool_call>",), models="Seed-OSS"),
    Fingerprint("functionary", ("<function=",), models="Functionary 3.1"),
    Fingerprint("minicpm5", ("<function name=",), models="MiniCPM5"),
    Fingerprint("granite", (r"<\|tool_call\|>",), models="Granite 3.3"),
    Fingerprint(
        "mistral",
        (r"\[TOOL_CALLS\]",),
        models="Mistral Nemo, Mistral Small 3.2, Devstral, Ministral 3",
    ),
    Fingerprint(
        "hermes",
        (r'<tool_call>[^<]{0,40}\{\\?"name',),
        models="Hermes 2 and 3, Qwen2.5, Qwen3, QwQ, MiMo-VL, Granite 4, Bielik 3, Reka Edge",
    ),
    Fingerprint("lfm2", (r"<\|tool_call_start\|>",), models="LFM2.5 8B"),
    Fingerprint(
        "llama3_json",
        (r'"name": function name, "parameters": dictionary',),
        models="Llama 3.1, 3.2 and 3.3",
    ),
    Fingerprint("pythonic", (r"\[func_name1\(param",), models="Llama 4 with vLLM's template"),
)
"""Formats of tool calls. The first one that matches is the template's."""

REASONING_FINGERPRINTS: Sequence[Fingerprint] = (
    Fingerprint("openai_gptoss", (r"<\|channel\|>analysis",), models="gpt-oss"),
    Fingerprint("gemma4", (r"<\|channel>thought",), models="Gemma 4"),
    Fingerprint("mistral", (r"\[THINK\]",), models="Ministral 3 Reasoning"),
    Fingerprint("seed_oss", ("<seed:think>",), models="Seed-OSS"),
    Fingerprint("granite", ("</think>", "<response></response>"), models="Granite 3.3"),
    Fingerprint("kimi_k2", ("</think>", r"<\|im_middle\|>"), models="Kimi K2 Thinking"),
    Fingerprint("minimax_m2", ("</think>", "<minimax:tool_call>"), models="MiniMax M2"),
    Fingerprint(
        "glm45",
        ("</think>", "<arg_key>"),
        models="GLM 4.5 to 4.7, Spark 2.5, Laguna, Ling 3.0 flash",
    ),
    Fingerprint(
        "deepseek_v3",
        ("</think>", _DEEPSEEK_TURN, "thinking is defined"),
        models="DeepSeek V3.1, V3.2 and V4",
    ),
    Fingerprint(
        "qwen3",
        ("</think>", r"<\|im_start\|>"),
        models="Qwen3, Qwen3.5, QwQ, Nemotron 3, Step 3.5, SmolLM3, LFM2.5, MiniCPM5, Bielik 3",
    ),
    Fingerprint(
        "deepseek_r1",
        ("</think>",),
        models="DeepSeek R1 and its distilled models, Nemotron Nano 2, Reka Edge, RWKV",
    ),
)
"""Formats of reasoning. The first one that matches is the template's."""


def format_shown(source: str, fingerprints: Sequence[Fingerprint]) -> str | None:
    """Return the name of the format that a chat template shows."""
    return next((one.name for one in fingerprints if one.matches(source)), None)
