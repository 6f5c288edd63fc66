"""Chat templates of the dialects show the formats that the dialects name."""

from __future__ import annotations

import pytest

from deployments.text.answers.choosing import NONE, choose
from tests.clients.dialects import DIALECTS

NOT_SHOWN = {"llama3_json": (NONE, "deepseek_r1")}
"""Choices for templates that do not show a format. Its words come from the model's training."""
SAME_MARKS = {
    name: (name, "deepseek_r1")
    for name in ("deepseek_v31", "deepseek_v32", "deepseek_v4", "granite")
}
"""Choices of another format of reasoning that has the same marks."""


@pytest.mark.parametrize("name", DIALECTS)
def test_the_chat_template_shows_the_format(name: str) -> None:
    dialect = DIALECTS[name]
    expected = {name: (dialect.calls, dialect.reasoning)} | NOT_SHOWN | SAME_MARKS
    chosen = choose(dialect.template)
    assert (chosen.calls.name, chosen.reasoning.name) == expected[name]
