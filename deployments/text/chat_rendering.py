"""Chat templates, rendered so that everything that was sent is in the prompt.

A template decides which roles and fields it shows, and silently drops the others. So each
conversation is rendered twice: as it is, for the prompt, and with a mark in each text that must be
shown. A text whose mark is not in the second rendering is missing in the first. Templates expect
different forms of one conversation. Equal forms are tried until nothing is missing. Templates are
compiled as transformers compiles them.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, reduce
from hashlib import blake2b
from itertools import combinations, islice
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from deployments.text.chat_messages import REASONING_FIELDS, Message, TemplateInput
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
    variables: dict[str, Any] = {"enable_thinking": False} if no_effort else {}
    return variables | {name: value for name, value in named.items() if value is not None}


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

    def render(self, given: TemplateInput) -> str:
        """Return the text. Raises InvalidRequestError if the template fails."""
        variables = {
            **given.variables,
            "messages": given.messages,
            "tools": list(given.tools) or None,
            "add_generation_prompt": given.add_generation_prompt,
        }
        try:
            return self.compiled.render(variables)
        except Exception as error:  # a template may fail in any way on its input
            message = f"the chat template refuses: {error}"
            raise InvalidRequestError(message, param=self.param) from error

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


_NUM_DIGITS = 6
"""Digits of a mark after those that all marks of a conversation share."""


class Marks:
    """The marks of one conversation, each with the refusal if it is not shown.

    A mark is a number that no text contains by chance. Templates copy digits as they are.
    """

    def __init__(self) -> None:
        self._shared = str(secrets.randbelow(10**15) + 10**15)
        self._refusals: list[tuple[str, str]] = []
        """Field and reason of the refusal, if the mark of this number is not shown."""
        self._end = ""

    def put(self, given: TemplateInput) -> TemplateInput:
        """Return the conversation with a mark in every text that must be shown."""
        messages = []
        last = len(given.messages) - 1 if given.continues_final_message else None
        for i, message in enumerate(given.messages):
            where, marked = f"messages.{i}", dict(message)
            content = message["content"] or ""
            if content.strip() or i == last:
                marked["content"] = self._text(f"{where}.content", message["role"], content)
            if message.get("tool_calls"):
                calls = enumerate(message["tool_calls"])
                marked["tool_calls"] = [self._call(f"{where}.tool_calls.{j}", c) for j, c in calls]
            messages.append(marked)
        given = replace(given, messages=messages)
        return self._with_tools(given) if given.tools else given

    def _with_tools(self, given: TemplateInput) -> TemplateInput:
        """Return the conversation with a mark in every tool."""
        tools, variables = [], dict(given.variables)
        for i, tool in enumerate(given.tools):
            tools.append(self._tool(f"tools.{i}", tool))
        for name, value in given.variables.items():
            if value == list(given.tools):  # SmolLM3 takes tools as `xml_tools`
                variables[name] = tools
        return replace(given, tools=tools, variables=variables)

    def check(self, rendered: str, *, is_cut: bool) -> None:
        """Raise InvalidRequestError for the first mark that is not in the text. `is_cut`: the
        prompt ends with the last message."""
        if is_cut:
            rendered = rendered[: rendered.rfind(self._end) + len(self._end)]
        shown = {after[:_NUM_DIGITS] for after in rendered.split(self._shared)[1:]}
        for number, (where, reason) in enumerate(self._refusals):
            if f"{number:0{_NUM_DIGITS}}" not in shown:
                message = f"{where}: {reason}"
                raise InvalidRequestError(message, param=where, code="unsupported_value")

    def _new(self, where: str, reason: str) -> str:
        self._refusals.append((where, reason))
        return f"{self._shared}{len(self._refusals) - 1:0{_NUM_DIGITS}}"

    def _text(self, where: str, role: str, content: str) -> str:
        """Mark both ends. An answer may begin with reasoning that is dropped: mark only its end."""
        reason = (
            "the model's chat template does not show the text of this message of role "
            f"{role!r:.40}: give it another role or place, or leave it out"
        )
        start = "" if role == "assistant" else self._new(where, reason)
        self._end = self._new(where, reason)
        return start + content + self._end

    def _call(self, where: str, call: Mapping[str, Any]) -> dict[str, Any]:
        reason = "the model's chat template does not show this call: leave it out"
        name = call["function"]["name"] + self._new(where, reason)
        mark = self._new(where, reason)
        given = call["function"]["arguments"]
        arguments = given + mark if isinstance(given, str) else {**given, f"a{mark}": mark}
        return {**call, "function": {**call["function"], "name": name, "arguments": arguments}}

    def _tool(self, where: str, tool: Mapping[str, Any]) -> dict[str, Any]:
        mark = self._new(where, "the model's chat template knows none: leave tools out")
        function = tool["function"]
        return {**tool, "function": {**function, "name": function["name"] + mark}}


def forms(messages: list[Message]) -> Iterator[list[Message]]:
    """Yield the conversation as it is, then with one change, with two and with three."""
    tried: list[list[Message]] = []
    for size in range(4):
        for changes in combinations(_CHANGES, size):
            form = reduce(lambda form, change: change(form), changes, messages)
            if form not in tried:
                tried.append(form)
                yield form


def system_for_developer(messages: list[Message]) -> list[Message]:
    """Turn a developer's messages into system messages."""
    return [{**m, "role": "system"} if m["role"] == "developer" else m for m in messages]


def _null_content(messages: list[Message]) -> list[Message]:
    """Give an answer that only calls tools null content. DeepSeek's templates look for it."""
    return [
        {**m, "content": None} if m.get("tool_calls") and not m["content"] else m for m in messages
    ]


def _text_arguments(messages: list[Message]) -> list[Message]:
    """Give the arguments of calls as JSON. DeepSeek's and Functionary's templates print them so."""
    return _with_calls(messages, _with_text_arguments)


def _with_text_arguments(call: Message) -> Message:
    function = call["function"]
    arguments = json.dumps(function["arguments"], ensure_ascii=False)
    return {**call, "function": {**function, "arguments": arguments}}


def _short_ids(messages: list[Message]) -> list[Message]:
    """Give calls IDs of nine letters and digits. Mistral's templates refuse all others."""
    shortened = _with_calls(messages, lambda call: _with_short(call, "id"))
    return [_with_short(message, "tool_call_id") for message in shortened]


def _with_short(holder: Message, name: str) -> Message:
    call_id = holder.get(name)
    if not isinstance(call_id, str) or (len(call_id) == 9 and call_id.isalnum()):
        return holder
    return {**holder, name: blake2b(call_id.encode(), digest_size=8).hexdigest()[:9]}


def _with_calls(messages: list[Message], change: Callable[[Message], Message]) -> list[Message]:
    """Return the messages with each of their calls changed."""
    return [
        {**m, "tool_calls": list(map(change, m["tool_calls"]))} if m.get("tool_calls") else m
        for m in messages
    ]


def _one_part_each(messages: list[Message]) -> list[Message]:
    """Give the text and each call of an answer a message of its own, and each call its results.

    Some templates show only one part of an answer, such as its first call.
    """
    split: list[Message] = []
    for message, results in _with_results(messages):
        calls = message.get("tool_calls", [])
        if message["content"] or not calls:
            split.append({name: part for name, part in message.items() if name != "tool_calls"})
        for call in calls:
            split.append({"role": message["role"], "content": "", "tool_calls": [call]})
            own = [r for r in results if r.get("tool_call_id") == call.get("id")]
            split += own
            results = [r for r in results if r not in own]
        split += results
    return split


def _with_results(messages: list[Message]) -> list[tuple[Message, list[Message]]]:
    """Return each message with the results of tools that follow it."""
    turns: list[tuple[Message, list[Message]]] = []
    for message in messages:
        if message["role"] == "tool" and turns:
            turns[-1][1].append(message)
        else:
            turns.append((message, []))
    return turns


def _without_reasoning(messages: list[Message]) -> list[Message]:
    """Leave reasoning out. gpt-oss's template refuses it next to text and calls."""
    return [{k: v for k, v in m.items() if k not in REASONING_FIELDS} for m in messages]


_CHANGES: tuple[Callable[[list[Message]], list[Message]], ...] = (
    system_for_developer,
    _short_ids,
    _one_part_each,
    _null_content,
    _text_arguments,
    _without_reasoning,
)


_FORMS_S = 2.0
"""CPU seconds after which no further form of a conversation is tried."""
_TAG = "CONTINUE_FINAL_MESSAGE_TAG "
"""Marks the end of the text to continue. Its space shows whether the template strips texts."""


def render(template: ChatTemplate, given: TemplateInput) -> str:
    """Return the first form of the conversation that the template shows whole.

    Raises InvalidRequestError if the template refuses or drops something.
    """
    started_s = time.thread_time()
    template = template.for_tools(given.tools)
    given = replace(given, messages=known_roles(template, given.messages))
    try:
        return _checked(template, given)
    except InvalidRequestError as refusal:
        return _in_another_form(template, given, refusal, started_s + _FORMS_S)


def _in_another_form(
    template: ChatTemplate, given: TemplateInput, refusal: InvalidRequestError, end_s: float
) -> str:
    """Return the first other form that the template shows whole. Raises `refusal` if there is none
    before `end_s`, in CPU seconds."""
    for messages in islice(forms(list(given.messages)), 1, None):
        if time.thread_time() > end_s:
            break
        with contextlib.suppress(InvalidRequestError):
            return _checked(template, replace(given, messages=messages))
    raise refusal


def known_roles(template: ChatTemplate, messages: Sequence[Message]) -> list[Message]:
    """Turn a developer's messages into system messages if the template has no such role."""
    given = list(messages)
    return given if "developer" in template.literals else system_for_developer(given)


def _checked(template: ChatTemplate, given: TemplateInput) -> str:
    is_continued = given.continues_final_message
    text = _begun_text(template, given) if is_continued else template.render(given)
    marks = Marks()
    try:
        marked = template.render(marks.put(given))
    except InvalidRequestError:  # it reads the texts, and refuses what it does not show
        return text
    marks.check(marked, is_cut=is_continued)
    return text


def _begun_text(template: ChatTemplate, given: TemplateInput) -> str:
    """Return the rendered text up to the end of the last message's text, as transformers does."""
    *others, last = given.messages
    final = last["content"]
    if last.get("tool_calls"):
        raise _cannot_continue("it has tool_calls")
    tagged = replace(given, messages=[*others, {**last, "content": final + _TAG}])
    rendered = template.render(tagged)
    end = rendered.rfind(_TAG.rstrip())
    if end < 0 or final.strip() not in rendered:
        raise _cannot_continue("the chat template does not show the last message as it is")
    strips = not rendered.startswith(_TAG, end)
    return rendered[:end].rstrip() if strips else rendered[:end]


def _cannot_continue(reason: str) -> InvalidRequestError:
    return InvalidRequestError(f"continue_final_message: {reason}", param="continue_final_message")
