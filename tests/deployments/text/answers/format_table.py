"""Writes docs/answer_formats.md from the tables of formats.

python -m tests.deployments.text.answers.format_table
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from deployments.text.answers.call_formats import CALL_FORMATS
from deployments.text.answers.fingerprints import (
    CALL_FINGERPRINTS,
    REASONING_FINGERPRINTS,
    Fingerprint,
)
from deployments.text.answers.formats import CallFormat, ReasoningFormat
from deployments.text.answers.parser_names import ALIASES
from deployments.text.answers.reasoning_formats import REASONING_FORMATS

FILE = Path(__file__).parents[4] / "docs" / "answer_formats.md"
_HEAD = """\
# Formats of answers

`python -m tests.deployments.text.answers.format_table` writes this page from the tables in
`deployments/text/answers/`. The names are vLLM's, and names of one row mean the same. A model is
listed if marks in its published chat template choose the format, so it needs no flag. A model whose
chat template shows no format needs the flag.

In the column "written as", a space may stand for a line break.
"""
_CALLS = """
## Tool calls: `--tool-call-parser`

| name | written as | chosen by the chat template of |
|---|---|---|
"""
_REASONING = """
## Reasoning: `--reasoning-parser`

| name | written as | chosen by the chat template of |
|---|---|---|
"""
_UNREAD = """
## Formats that are not supported

The ready line names the format. Calls in it stay in the content.

| name | shown by the chat template of |
|---|---|
"""


def page() -> str:
    """Return the whole page."""
    calls = _rows("tool_call_parser", CALL_FORMATS, CALL_FINGERPRINTS, _call)
    reasoning = _rows("reasoning_parser", REASONING_FORMATS, REASONING_FINGERPRINTS, _reasoning)
    other = [one for one in CALL_FINGERPRINTS if one.name not in CALL_FORMATS]
    unread = [f"| `{one.name}` | {one.models} |\n" for one in other]
    return "".join([_HEAD, _CALLS, *calls, _REASONING, *reasoning, _UNREAD, *unread])


def _rows(
    option: str, formats: Mapping[str, Any], shown: Sequence[Fingerprint], example: Any
) -> Iterator[str]:
    models = {one.name: one.models for one in shown}
    for names in _same(formats):
        aliases = [alias for alias, name in ALIASES[option].items() if name in names]
        listed = ", ".join(f"`{name}`" for name in [*names, *aliases])
        of = "; ".join(models[name] for name in names if name in models)
        yield f"| {listed} | `` {example(formats[names[0]])} `` | {of} |\n"


def _same(formats: Mapping[str, Any]) -> list[list[str]]:
    """Return the names, those of one format together."""
    groups: dict[int, list[str]] = {}
    for name, one in formats.items():
        groups.setdefault(id(one), []).append(name)
    return list(groups.values())


def _call(one: CallFormat) -> str:
    named = {"{json_name}": '"NAME"', "{name}": "NAME", "{index}": "0", "{key}": "KEY"}
    arguments = '{"KEY": VALUE}'
    if one.parameters is not None:
        quote = one.parameters.quote
        arguments = f"{one.parameters.opening}{quote}VALUE{quote}{one.parameters.closing}"
    text = f"{one.before}{one.opening}{arguments}{one.closing}{one.after}"
    for place, value in named.items():
        text = text.replace(place, value)
    return _line(text)


def _reasoning(one: ReasoningFormat) -> str:
    return _line(f"{one.opening}REASONING{one.closing}{one.content_opening}")


def _line(text: str) -> str:
    return text.strip().replace("\n\n", " ").replace("\n", " ").replace("|", "\\|")


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
