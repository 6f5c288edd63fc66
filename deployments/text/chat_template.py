"""Chat templates: compiled as transformers compiles them, and the options of a rendering."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from specdec_core.errors import InvalidRequestError, ModelNotSupportedError


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """Options for rendering a conversation."""

    add_generation_prompt: bool = True
    """End with the beginning of an answer."""
    continues_final_message: bool = False
    """End within the last message, so that the answer continues it."""
    variables: Mapping[str, Any] = field(default_factory=dict)
    """Variables of the template, by name."""
    tools: Sequence[Mapping[str, Any]] = ()
    """Functions that the model may call."""
    template: str | None = None
    """Jinja source that replaces the model's template."""
    add_special_tokens: bool = False
    """Let the tokenizer add its special tokens to the rendered text."""

    def __post_init__(self) -> None:
        if self.add_generation_prompt and self.continues_final_message:
            raise InvalidRequestError(
                "add_generation_prompt and continue_final_message exclude each other",
                param="continue_final_message",
            )


def template_variables(named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables of a request for the template. Null leaves a variable out."""
    no_effort = named.get("reasoning_effort") == "none"
    thinking = {"enable_thinking": False} if no_effort else {}
    return thinking | {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True)
class ChatTemplate:
    """A compiled template, with the one that replaces it when a request has tools."""

    source: str
    compiled: Template
    tool_use: ChatTemplate | None = None
    param: str = "messages"
    """The field of a request that is wrong if the template refuses it."""

    def for_tools(self, tools: Sequence[Any]) -> ChatTemplate:
        """Return the template for a request with these tools."""
        return self.tool_use if tools and self.tool_use is not None else self

    @property
    def all_sources(self) -> str:
        """Source of the template and of the one for requests with tools."""
        return self.source + (self.tool_use.source if self.tool_use is not None else "")

    def render(self, variables: Mapping[str, Any]) -> str:
        """Return the text. Raises InvalidRequestError if the template fails."""
        try:
            return self.compiled.render(variables)
        except Exception as error:  # a template may fail in any way on its input
            raise InvalidRequestError(
                f"the chat template refuses: {error}", param=self.param
            ) from error

    @cached_property
    def literals(self) -> frozenset[str]:
        """Texts and string constants that the template itself contains."""
        tree = self.compiled.environment.parse(self.source)
        texts = {node.data for node in tree.find_all(nodes.TemplateData)}
        constants = {node.value for node in tree.find_all(nodes.Const)}
        return frozenset(texts | {value for value in constants if isinstance(value, str)})


def own_template(source: str) -> ChatTemplate:
    """Compile a request's own template. Raises InvalidRequestError."""
    try:
        return replace(compile_template(source), param="chat_template")
    except ModelNotSupportedError as error:
        raise InvalidRequestError(str(error), param="chat_template") from error


def compile_template(source: str, tool_use: str | None = None) -> ChatTemplate:
    """Compile a template and, if there is one, the template for requests with tools.

    Raises ModelNotSupportedError.
    """
    try:
        compiled = _environment().from_string(source)
    except TemplateError as error:
        raise ModelNotSupportedError(f"the chat template is not valid: {error}") from error
    return ChatTemplate(source, compiled, None if tool_use is None else compile_template(tool_use))


class _GenerationBlocks(Extension):
    """`{% generation %}` blocks. They mark answers for training, and print them here."""

    tags = {"generation"}  # noqa: RUF012  # declared so by jinja2

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_print"), [], [], body).set_lineno(line)

    def _print(self, caller: Callable[[], str]) -> str:
        return caller()


def _environment() -> ImmutableSandboxedEnvironment:
    """Return the environment that transformers renders chat templates in."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlocks, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
