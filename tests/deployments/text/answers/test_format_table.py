"""docs/answer_formats.md lists the formats that there are."""

from __future__ import annotations

from tests.deployments.text.answers.format_table import FILE, page


def test_the_page_is_what_the_tables_make() -> None:
    command = "python -m tests.deployments.text.answers.format_table"
    assert FILE.read_text(encoding="utf-8") == page(), f"run `{command}`"
