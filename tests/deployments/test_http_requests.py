"""What of a conversation reaches the chat template."""

from __future__ import annotations

from typing import Any

import pytest

from deployments.http_requests import checked_messages
from specdec_core.errors import InvalidRequestError


def test_role_content_and_name_are_passed_on_and_empty_fields_mean_nothing() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    given: list[dict[str, Any]] = [
        {"role": "user", "content": parts, "name": "Ada"},
        {"role": "assistant", "content": "c", "name": None, "tool_calls": [], "refusal": None},
    ]
    assert checked_messages(given) == [
        {"role": "user", "content": "ab", "name": "Ada"},
        {"role": "assistant", "content": "c"},
    ]


def test_a_field_that_would_be_lost_is_refused() -> None:
    message = {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]}
    with pytest.raises(InvalidRequestError, match=r"messages\.0\.tool_calls is not supported yet"):
        checked_messages([message])
