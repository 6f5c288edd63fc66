"""Flags that choose the prompts of a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deployments.config.flags import INPUT_FILE, REQUIRED, flag
from specdec_core.errors import InvalidRequestError

if TYPE_CHECKING:
    from deployments.cli.generate.prompt_file import PromptLine


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptOptions:
    """A file of prompts, and its lines that are used."""

    input: Path = flag(
        REQUIRED,
        "File of JSON lines with `turns` (Spec-Bench), `prompt`, `messages` or `prompt_token_ids`.",
        **INPUT_FILE,
    )
    limit: int | None = flag(None, "Use only the first N lines.", min=1)
    sample: int | None = flag(None, "Use N lines, spread evenly over the categories.", min=1)
    raw_prompt: bool = flag(False, "Use prompts without the chat template.")

    def __post_init__(self) -> None:
        if self.limit is not None and self.sample is not None:
            raise InvalidRequestError("--limit and --sample exclude each other")

    def read(self) -> list[PromptLine]:
        """Return the chosen lines. Raises InvalidRequestError that names a bad line."""
        from deployments.cli.generate.prompt_file import read_prompt_file, select

        return select(read_prompt_file(self.input), limit=self.limit, sample=self.sample)

    @contextmanager
    def naming(self, line: PromptLine) -> Iterator[None]:
        """Put the file and the line number before an error message about a line."""
        try:
            yield
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{self.input} line {line.line_number}: {error}") from error
