"""Chat templates: how they are compiled, and what a request may say of their rendering."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from specdec_core.errors import InvalidRequestError, ModelNotSupportedError


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """How a conversation is rendered."""

    add_generation_prompt: bool = True
    """End with what begins an answer."""
    continues_final_message: bool = False
    """End within the last message, so that the answer goes on with it."""
    variables: Mapping[str, Any] = field(default_factory=dict)
    """For the template, by name."""
    tools: Sequence[Mapping[str, Any]] = ()
    """Functions that the model is shown."""
    template: str | None = None
    """Jinja source instead of the model's own."""
    add_special_tokens: bool = False
    """Put the tokenizer's special tokens around what the template gives, which has its own."""

    def __post_init__(self) -> None:
        if self.add_generation_prompt and self.continues_final_message:
            raise InvalidRequestError(
                "add_generation_prompt and continue_final_message exclude each other"
            )


def up_to_final(rendered: str, messages: Sequence[Mapping[str, Any]]) -> str:
    """Without what the template puts behind the last message. Templates may strip its ends."""
    final = messages[-1]["content"]
    for shown in (final, final.strip()):
        start = rendered.rfind(shown)
        if shown and start >= 0:
            return rendered[: start + len(shown)]
    raise InvalidRequestError(
        "continue_final_message: the chat template does not show the last message as it is"
    )


def own_template(source: str) -> Template:
    """A request's own. Raises InvalidRequestError."""
    try:
        return compile_template(source)
    except ModelNotSupportedError as error:
        raise InvalidRequestError(str(error)) from error


def compile_template(source: str) -> Template:
    """The environment that transformers renders chat templates in."""

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def tojson(value: Any, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    try:
        return environment.from_string(source)
    except TemplateError as error:
        raise ModelNotSupportedError(f"the chat template is not valid: {error}") from error
