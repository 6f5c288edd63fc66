"""Prompts of the benchmarks: first turns of a file through the model's chat template, as ids."""

from __future__ import annotations

from pathlib import Path

from deployments.cli.generate.prompt_file import read_prompt_file, select
from deployments.cli.generate.prompt_text import encode_line
from deployments.text.tokenizer import load_text_model


def chat_prompts(
    folder: str, path: Path, sample: int, category: str | None = None
) -> list[tuple[int, ...]]:
    """Return `sample` lines of the file, spread over its categories or of one of them."""
    text = load_text_model(folder)
    lines = [one for one in read_prompt_file(path) if category in (None, one.category)]
    lines = select(lines, sample=sample)
    return [encode_line(text, line, is_raw=False) for line in lines]
