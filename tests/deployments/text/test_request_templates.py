"""A chat's own template and special tokens: only where they are allowed, and what they do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from deployments.text.chat_rendering import ChatOptions
from specdec_core.errors import InvalidRequestError
from tests.deployments.fake_text import FakeBackend, fake_text_model
from tests.deployments.http_server import TEXT, server

MESSAGES = [{"role": "user", "content": "HELLO"}]
TWICE = "{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}"
BOS = 49


class BosBackend(FakeBackend):
    """Puts an id before every text, where special tokens are asked for."""

    def encode(self, sequence: str, *, add_special_tokens: bool) -> Any:
        encoding = super().encode(sequence, add_special_tokens=add_special_tokens)
        return replace(encoding, ids=[BOS] * add_special_tokens + encoding.ids)


def chat(**fields: Any) -> dict[str, Any]:
    return {"messages": MESSAGES, "max_tokens": 2, "return_token_ids": True} | fields


async def test_a_template_of_a_request_is_used_where_that_is_allowed() -> None:
    async with server(trusts_chat_templates=True) as (client, _):
        answer = await client.post("/v1/chat/completions", json=chat(chat_template=TWICE))
        (choice,) = answer.json()["choices"]
        assert choice["prompt_token_ids"] == list(TEXT.encode("HELLOHELLO"))
        plain = await client.post("/v1/chat/completions", json=chat())
        assert plain.json()["choices"][0]["prompt_token_ids"] == list(TEXT.encode("HELLO"))


@pytest.mark.parametrize(
    ("allowed", "template", "message"),
    [
        (False, TWICE, "trust_request_chat_template is off"),
        (True, "{% for", "the chat template is not valid"),
        (True, "{{ messages.__class__.__mro__ }}", "the chat template refuses"),
        (True, "{{ raise_exception('no') }}", "the chat template refuses: no"),
    ],
)
async def test_other_templates_are_refused(allowed: bool, template: str, message: str) -> None:
    async with server(trusts_chat_templates=allowed) as (client, parts):
        answer = await client.post("/v1/chat/completions", json=chat(chat_template=template))
        assert answer.status_code == 400
        assert message in answer.json()["error"]["message"]
        assert not parts.replicas["t0"].rules_seen


def test_tools_need_a_template_that_shows_them() -> None:
    tools = ({"type": "function", "function": {"name": "f"}},)
    shows = "{{ tools[0].function.name }}{{ messages[0].content }}"
    options = ChatOptions(template=shows, tools=tools)
    assert TEXT.render_chat(MESSAGES, options) == "fHELLO"
    with pytest.raises(InvalidRequestError, match="knows none"):
        TEXT.render_chat(MESSAGES, replace(options, template=TWICE))


@pytest.mark.parametrize("adds", [False, True])
def test_special_tokens_are_put_around_where_that_is_asked(adds: bool) -> None:
    text = replace(fake_text_model(), backend=BosBackend())
    expected = [BOS] * adds + list(TEXT.encode("HELLO"))
    assert list(text.encode("HELLO", add_special_tokens=adds)) == expected
    assert list(text.encode_chat(MESSAGES, ChatOptions(add_special_tokens=adds))) == expected
    assert text.encode("HELLO")[0] == BOS
    assert text.encode_chat(MESSAGES)[0] != BOS
