"""Chat templates, a model's or a request's, reach nothing; a request's own costs little."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from deployments.text.chat_messages import TemplateInput
from deployments.text.chat_rendering import ChatOptions, compile_template
from deployments.text.template_process import render_apart
from specdec_core.errors import InvalidRequestError
from tests.deployments.http_server import TEXT, server

MESSAGES = [{"role": "user", "content": "HELLO"}]

ESCAPES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.__class__ }}",
    "{{ messages[0].content.__class__.__base__ }}",
    "{{ messages|attr('__class__')|attr('__base__') }}",
    "{{ messages['__class__'] }}",
    "{{ lipsum.__globals__['os'].environ }}",
    "{{ cycler.__init__.__globals__.os }}",
    "{{ raise_exception.__globals__ }}",
    "{{ strftime_now.__closure__ }}",
    "{{ '{0.__class__.__base__}'.format('') }}",
    "{{ ('{0.__class__.__base__}'|string).format('') }}",
    "{{ '{x.__class__}'.format_map({'x': ''}) }}",
    "{% set f = '{0.__class__}'.format %}{{ f('') }}",
    "{{ messages|map('attr', '__class__')|list }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update({'role': 'system'}) }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}{{ os }}",
]


def by_model(source: str) -> str:
    return replace(TEXT, template=compile_template(source)).render_chat(MESSAGES)


def by_request(source: str) -> str:
    return TEXT.render_chat(MESSAGES, ChatOptions(template=source))


@pytest.mark.parametrize("render", [by_model, by_request])
@pytest.mark.parametrize("source", ESCAPES)
def test_no_template_reaches_behind_its_values(source: str, render: Callable[[str], str]) -> None:
    """Refused, or rendered as the empty text of what is not defined."""
    rendered = ""
    with contextlib.suppress(InvalidRequestError):
        rendered = render(source)
    assert rendered.strip() in ("", "[Undefined]")
    assert MESSAGES == [{"role": "user", "content": "HELLO"}]


def test_the_sandbox_is_not_what_empties_a_harmless_template() -> None:
    """Else the test above would show nothing."""
    harmless = "{{ messages[0].content }} {{ '{0}'.format('a') }} {{ messages|length }}"
    assert by_model(harmless) == by_request(harmless) == "HELLO a 1"


EXPENSIVE = {
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "doubles": "{% set n = namespace(s='aa') %}{% for i in range(60) %}"
    "{% set n.s = n.s + n.s %}{% endfor %}{{ n.s }}",
    "multiplies": "{{ 'a' * 9999999999 }}",
    "pads": "{{ 'a'.ljust(9999999999) }}",
    "formats": "{{ '%9999999999d' % 1 }}",
    "is a power": "{{ 9 ** (9 ** 9) }}",
    "recurses": "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "is long": "{{ 'a' * 100000 }}",
}


@pytest.mark.parametrize(
    "source",
    [
        # Two seconds of computing, as the loops.
        pytest.param(s, id=name, marks=[pytest.mark.nightly] if name == "is a power" else [])
        for name, s in EXPENSIVE.items()
    ],
)
def test_a_template_that_costs_too_much_is_refused(source: str) -> None:
    before = time.monotonic()
    with pytest.raises(InvalidRequestError, match=r"chat.template"):
        by_request(source)
    assert time.monotonic() - before < 30  # two seconds of its own, on a busy machine


@pytest.mark.parametrize("name", ["loops", "is a power"])
def test_a_refusal_names_the_setting(name: str) -> None:
    text = replace(TEXT, max_template_seconds=0.2)
    with pytest.raises(InvalidRequestError, match=r"max_template_seconds=0\.2 of CPU") as refused:
        text.render_chat(MESSAGES, ChatOptions(template=EXPENSIVE[name]))
    assert refused.value.param == "chat_template"


async def test_others_are_answered_while_templates_loop() -> None:
    text = replace(TEXT, max_template_seconds=1.0)
    async with server(text=text, trusts_chat_templates=True) as (client, _):
        body: dict[str, Any] = {"messages": MESSAGES, "max_tokens": 2}
        looping = [
            asyncio.create_task(
                client.post(
                    "/v1/chat/completions", json=body | {"chat_template": EXPENSIVE["loops"]}
                )
            )
            for _ in range(20)
        ]
        await asyncio.sleep(0)
        answer = await client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200
        assert not any(task.done() for task in looping)
        for task in looping:
            task.cancel()


def test_a_templates_process_sees_none_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECDEC_API_KEYS", "a secret")
    given: dict[str, str] = {}
    run_it = subprocess.run

    def spy(*arguments: Any, **options: Any) -> Any:
        given.update(options["env"])
        return run_it(*arguments, **options)

    monkeypatch.setattr(subprocess, "run", spy)
    given_input = TemplateInput(messages=[], variables={"x": "é\ud800"})
    assert render_apart("{{ x }}", given_input, 10) == "é\ud800"
    assert set(given) == {"PYTHONPATH"}
    assert "SPECDEC_API_KEYS" in os.environ
