"""Formats that published chat templates show.

SPECDEC_CHAT_TEMPLATES names a folder of `*.jinja` files, such as llama.cpp's models/templates.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from deployments.text.answers.fingerprints import (
    CALL_FINGERPRINTS,
    REASONING_FINGERPRINTS,
    format_shown,
)

_FOLDER = os.environ.get("SPECDEC_CHAT_TEMPLATES", "")
_SHOWN: Mapping[str, tuple[str | None, str | None]] = {
    "Apertus-8B-Instruct": (None, None),
    "Apriel-1.6-15b-Thinker-fixed": (None, None),
    "Bielik-11B-v3.0-Instruct": ("hermes", "qwen3"),
    "ByteDance-Seed-OSS": ("seed_oss", "seed_oss"),
    "Cohere2MoE": (None, None),
    "CohereForAI-c4ai-command-r-plus-tool_use": (None, None),
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": (None, None),
    "GLM-4.6": ("glm45", "glm45"),
    "GLM-4.7-Flash": ("glm47", "glm45"),
    "GigaChat3-10B-A1.8B": (None, None),
    "GigaChat3.1-10B-A1.8B": (None, None),
    "HuggingFaceTB-SmolLM3-3B": (None, "qwen3"),
    "Kimi-K2-Instruct": ("kimi_k2", None),
    "Kimi-K2-Thinking": ("kimi_k2", "kimi_k2"),
    "Kimi-K3": (None, None),
    "LFM2-8B-A1B": (None, None),
    "LFM2.5-8B-A1B": ("lfm2", "qwen3"),
    "LFM2.5-Instruct": (None, "qwen3"),
    "MiMo-VL": ("hermes", None),
    "MiniMax-M1": (None, None),
    "MiniMax-M2": ("minimax_m2", "minimax_m2"),
    "MiniMax-M3": (None, None),
    "Mistral-Small-3.2-24B-Instruct-2506": ("mistral", None),
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": ("qwen3_coder", "qwen3"),
    "NVIDIA-Nemotron-Nano-v2": (None, "deepseek_r1"),
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": ("hermes", None),
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": ("hermes", None),
    "Qwen-QwQ-32B": ("hermes", "qwen3"),
    "Qwen-Qwen2.5-7B-Instruct": ("hermes", None),
    "Qwen-Qwen3-0.6B": ("hermes", "qwen3"),
    "Qwen3-Coder": ("qwen3_coder", None),
    "Qwen3.5-4B": ("qwen3_coder", "qwen3"),
    "Reka-Edge": ("hermes", "deepseek_r1"),
    "Spark2.5": ("glm47", "glm45"),
    "StepFun3.5-Flash": ("qwen3_coder", "qwen3"),
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": ("deepseek_v3", "deepseek_r1"),
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": ("deepseek_v3", "deepseek_r1"),
    "deepseek-ai-DeepSeek-V3.1": ("deepseek_v31", "deepseek_v3"),
    "deepseek-ai-DeepSeek-V3.2": ("deepseek_v32", "deepseek_v3"),
    "deepseek-ai-DeepSeek-V4-Flash-0731": ("deepseek_v4", "deepseek_v3"),
    "deepseek-ai-DeepSeek-V4": ("deepseek_v4", "deepseek_v3"),
    "fireworks-ai-llama-3-firefunction-v2": (None, None),
    "google-gemma-2-2b-it": (None, None),
    "google-gemma-4-31B-it-interleaved": ("gemma4", "gemma4"),
    "google-gemma-4-31B-it": ("gemma4", "gemma4"),
    "ibm-granite-granite-3.3-2B-Instruct": ("granite", "granite"),
    "ibm-granite-granite-4.0": ("hermes", None),
    "ibm-granite-granite-4.1": ("hermes", None),
    "inclusionai-ling-3.0-flash": ("glm45", "glm45"),
    "llama-cpp-deepseek-r1": ("deepseek_v3", "deepseek_r1"),
    "llama-cpp-rwkv-world": (None, "deepseek_r1"),
    "meetkai-functionary-medium-v3.1": ("functionary", None),
    "meetkai-functionary-medium-v3.2": (None, None),
    "meta-llama-Llama-3.1-8B-Instruct": ("llama3_json", None),
    "meta-llama-Llama-3.2-3B-Instruct": ("llama3_json", None),
    "meta-llama-Llama-3.3-70B-Instruct": ("llama3_json", None),
    "microsoft-Phi-3.5-mini-instruct": (None, None),
    "mistralai-Ministral-3-14B-Reasoning-2512": ("mistral", "mistral"),
    "mistralai-Mistral-Nemo-Instruct-2407": ("mistral", None),
    "moonshotai-Kimi-K2": ("kimi_k2", None),
    "muse-glimmer": (None, None),
    "openai-gpt-oss-120b": ("openai", "openai_gptoss"),
    "openbmb-MiniCPM5-1B": ("minicpm5", "qwen3"),
    "poolside-Laguna-S-2.1": ("glm47", "glm45"),
    "poolside-Laguna-XS-2.1": ("glm45", "glm45"),
    "poolside-Laguna-XS.2": ("glm45", "glm45"),
    "tencent-Hy3": (None, None),
    "unsloth-Apriel-1.5": (None, None),
    "unsloth-mistral-Devstral-Small-2507": ("mistral", None),
    "upstage-Solar-Open-100B": (None, None),
}
"""Formats of tool calls and of reasoning by file, as each template's text has them."""


@pytest.mark.skipif(not _FOLDER, reason="SPECDEC_CHAT_TEMPLATES names no folder of templates")
def test_published_templates_show_their_formats() -> None:
    found = {file.stem: _shown(file) for file in Path(_FOLDER).glob("*.jinja")}
    known = {name: shown for name, shown in found.items() if name in _SHOWN}
    assert known, f"{_FOLDER} has no template of the table"
    assert known == {name: _SHOWN[name] for name in known}


def _shown(file: Path) -> tuple[str | None, str | None]:
    source = file.read_text(encoding="utf-8")
    return format_shown(source, CALL_FINGERPRINTS), format_shown(source, REASONING_FINGERPRINTS)
