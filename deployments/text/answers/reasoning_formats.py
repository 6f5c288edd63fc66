"""Formats of reasoning by vLLM's names, as data."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from deployments.text.answers.formats import ReasoningFormat


def _reasoning(
    opening: str, closing: str, *, around: str = "", written_after: str = ""
) -> ReasoningFormat:
    """Return reasoning between two texts. `around` is layout that a model writes inside them.

    A closing mark without an opening one, as in a prompt that turns reasoning off, ends reasoning,
    too: an empty region begins there.
    """
    return ReasoningFormat(
        fields={
            "reasoning_content": {"open": opening, "close": closing},
            "after_reasoning": {"open": closing, "close_pattern": ""},
        },
        opening=opening + around,
        closing=around + closing + written_after,
    )


THINK = _reasoning("<think>", "</think>", around="\n", written_after="\n\n")
_TIGHT_THINK = _reasoning("<think>", "</think>")

REASONING_FORMATS: Mapping[str, ReasoningFormat] = MappingProxyType(
    {
        "qwen3": THINK,
        "deepseek_r1": THINK,
        "glm45": _TIGHT_THINK,
        "deepseek_v3": _TIGHT_THINK,
        "kimi_k2": _TIGHT_THINK,
        "minimax_m2": THINK,
        "mistral": _reasoning("[THINK]", "[/THINK]"),
        "gemma4": ReasoningFormat(
            fields={"reasoning_content": {"open": "<|channel>thought\n", "close": "<channel|>"}},
            opening="<|channel>thought\n",
            closing="<channel|>",
            special_openings=("<|channel>",),
        ),
        "seed_oss": _reasoning("<seed:think>", "</seed:think>"),
        "granite": ReasoningFormat(
            fields={
                "reasoning_content": {
                    "open": [
                        "<think>",
                        "Here is my thought process:",
                        "Here's my thought process:",
                    ],
                    "close": ["</think>", "Here is my response:", "Here's my response:"],
                },
                "content": {"open": "<response>", "close": "</response>"},
            },
            opening="<think>",
            closing="</think>",
        ),
        "openai_gptoss": ReasoningFormat(
            fields={
                "reasoning_content": {
                    "open": [
                        "<|channel|>analysis<|message|>",
                        "<|start|>assistant<|channel|>analysis<|message|>",
                    ],
                    "close": "<|end|>",
                    "repeats": True,
                },
                "content": {
                    "open_pattern": r"(?:<\|start\|>assistant)?"
                    r"<\|channel\|>(?:final|commentary)"
                    r"(?: ?<\|constrain\|>[a-z]{1,16})?<\|message\|>",
                    "close": ["<|end|>", "<|return|>"],
                    "repeats": True,
                },
            },
            opening="<|channel|>analysis<|message|>",
            closing="<|end|><|start|>assistant",
            content_opening="<|channel|>final<|message|>",
            special_openings=("<|channel|>", "<|start|>"),
            follows_content=True,
        ),
    }
)
"""Formats of reasoning by vLLM's names for `--reasoning-parser`."""
