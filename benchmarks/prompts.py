"""Prompts of the benchmarks: first turns of a file through the model's chat template, as ids."""

from __future__ import annotations

from pathlib import Path

from deployments.generate.prompt_file import read_prompt_file, select
from deployments.generate.prompt_text import encode_line
from deployments.text.model import load_text_model


def chat_prompts(folder: str, path: Path, sample: int) -> list[tuple[int, ...]]:
    """`sample` lines of the file, spread over its categories."""
    text = load_text_model(folder)
    lines = select(read_prompt_file(path), sample=sample)
    return [encode_line(text, line, is_raw=False) for line in lines]
