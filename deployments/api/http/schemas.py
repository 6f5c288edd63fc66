"""Bodies of the OpenAI routes: strict types, known names, clear refusals.

The types of prompts and of resumed token IDs depend on each other, so they are checked by hand.
"""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError, model_validator
from pydantic_core import from_json

from deployments.api.http.known_fields import NAMES, check_neutral
from deployments.api.http.unknown_fields import UnknownFields, unknown_names
from deployments.errors import WrongTypeError
from deployments.ingress.generation_request import (
    AnswerOptions,
    GenerationRequest,
    OutputOptions,
    Resume,
)
from deployments.text.answers.asking import CallsAsked
from deployments.text.chat_messages import checked_tools
from deployments.text.chat_rendering import ChatOptions, template_variables
from deployments.text.sampling_fields import SAMPLING_NAMES, SamplingFields
from deployments.text.structured_output import (
    choice,
    from_response_format,
    from_structured_outputs,
    json_schema,
    lark,
    regex,
)
from deployments.validation_errors import describe, path_of
from specdec_core.errors import InvalidRequestError, out_of_range
from specdec_core.grammar import GrammarSpec
from specdec_core.sampling_params import MAX_LOGPROBS

DEFAULT_COMPLETION_TOKENS = 16
"""OpenAI's default for completions; chat completions take what the context has room for."""

_GRAMMARS: Mapping[str, Callable[[Any, str], GrammarSpec | None]] = {
    "response_format": from_response_format,
    "structured_outputs": from_structured_outputs,
    "guided_json": json_schema,
    "guided_regex": regex,
    "guided_choice": choice,
    "guided_grammar": lark,
    "json_schema": json_schema,
    "regex": regex,
}
"""Fields that ask for a grammar. The first two are OpenAI's and vLLM's. Each of the others is for
one kind of structured output, in older vLLM, llama.cpp and SGLang."""


class _Object(BaseModel):
    """A body, or an object inside it."""

    model_config = ConfigDict(strict=True, extra="allow", protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _leave_null_out(cls, values: Any) -> Any:
        """null means that a field is left out, in every body and in the objects inside it."""
        if isinstance(values, dict):
            return {name: value for name, value in values.items() if value is not None}
        return values


class _Body(_Object):
    model: str | None = None

    _warnings: list[str] = PrivateAttr(default_factory=list)

    @property
    def warnings(self) -> Sequence[str]:
        """The response's warnings about unknown names."""
        return self._warnings


class StreamOptions(_Object):
    include_usage: bool = False
    continuous_usage_stats: bool = False


class SpeculativeOptions(_Object):
    enabled: bool = True
    num_speculative_tokens: int | None = None
    method: str | None = None


class ResumeOptions(_Object):
    token_ids: Any
    seed: int | None = None
    system_fingerprint: str | None = None

    @property
    def to_resume(self) -> Resume:
        return Resume(
            token_ids=checked_resume_ids(self.token_ids),
            seed=self.seed,
            system_fingerprint=self.system_fingerprint or "",
        )


def checked_resume_ids(token_ids: Any) -> Sequence[Sequence[int]]:
    """Return a list of IDs for every choice. Raises InvalidRequestError for everything else."""
    if isinstance(token_ids, list):
        is_nested = bool(token_ids) and all(isinstance(one, list) for one in token_ids)
        choices = token_ids if is_nested else [token_ids]
        if all(_is_id(one) for choice in choices for one in choice):
            return choices
    raise InvalidRequestError(
        "resume.token_ids must be a list of token ids, or one such list for every "
        f"choice, got {json.dumps(token_ids):.80}",
        param="resume.token_ids",
    )


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class CommonBody(_Body, SamplingFields):
    """Fields that completions and chat completions share."""

    n: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    speculative: SpeculativeOptions | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    json_schema: Any = None
    regex: Any = None
    max_completion_tokens: int | None = None
    return_token_ids: bool | None = False
    skip_special_tokens: bool | None = None
    include_stop_str_in_output: bool | None = None
    truncate_prompt_tokens: int | None = None
    prompt_logprobs: int | None = None
    priority: int = 0
    cache_salt: str | None = None
    request_id: str | None = None
    resume: ResumeOptions | None = None

    def _to_request(self, num_logprobs: int | None) -> GenerationRequest:
        if self.prompt_logprobs is not None and self.stream:
            raise _streamed_prompt_logprobs(self.prompt_logprobs)
        if self.cache_salt == "":
            raise _empty_cache_salt()
        # If both names are there, the newer one holds.
        newer = self.max_completion_tokens
        speculative = self.speculative or SpeculativeOptions()
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return GenerationRequest(
            sampling={name: getattr(self, name) for name in SAMPLING_NAMES}
            | {
                "max_tokens": self.max_tokens if newer is None else newer,
                "logprobs": num_logprobs,
                "prompt_logprobs": self.prompt_logprobs,
                "grammar": self._grammar() if _GRAMMARS.keys() & self.model_fields_set else None,
            },
            stop=stop,
            speculation_enabled=speculative.enabled,
            num_draft_tokens=speculative.num_speculative_tokens,
            spec_method=speculative.method,
            priority=self.priority,
            cache_salt=self.cache_salt or "",
            request_id=self.request_id or "",
            view=OutputOptions(
                shows_special_tokens=self.skip_special_tokens is False,
                includes_stop=bool(self.include_stop_str_in_output),
            ),
            truncate_prompt_tokens=self.truncate_prompt_tokens,
            resume=None if self.resume is None else self.resume.to_resume,
            max_tokens_field="max_tokens" if newer is None else "max_completion_tokens",
        )

    def _grammar(self) -> GrammarSpec | None:
        """Return the answer's grammar; None if no field asks for one. Raises InvalidRequestError if
        several fields do."""
        grammars: dict[str, GrammarSpec] = {}
        for name, read in _GRAMMARS.items():
            value = getattr(self, name)
            grammar = None if value is None else read(value, name)
            if grammar is not None:
                grammars[name] = grammar
        if len(grammars) > 1:
            names = " and ".join(grammars)
            raise InvalidRequestError(f"{names} exclude each other", param=next(iter(grammars)))
        return next(iter(grammars.values()), None)


def _streamed_prompt_logprobs(count: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"prompt_logprobs={count} does not support streams: leave "
        "stream out, or use echo with logprobs",
        param="prompt_logprobs",
        code="unsupported_value",
    )


def _empty_cache_salt() -> InvalidRequestError:
    return InvalidRequestError(
        "cache_salt is empty and would share the cache with every request: leave it out",
        param="cache_salt",
    )


class CompletionBody(CommonBody):
    prompt: Any
    add_special_tokens: bool = True
    logprobs: int | None = None
    echo: bool | None = None
    best_of: int | None = None

    def to_request(self) -> GenerationRequest:
        n = 1 if self.n is None else self.n
        if self.best_of not in (None, n):
            raise InvalidRequestError(
                f"best_of={self.best_of} must equal n={n}, because choices "
                "are not ranked: set best_of to n or leave it out",
                param="best_of",
                code="unsupported_value",
            )
        request = self._to_request(self.logprobs)
        max_tokens = request.sampling["max_tokens"]
        if max_tokens is None:
            max_tokens = DEFAULT_COMPLETION_TOKENS
        is_prompt_alone = bool(self.echo) and max_tokens == 0
        counts = [count for count in (self.prompt_logprobs, self._echoed) if count is not None]
        own = {
            "max_tokens": max_tokens + is_prompt_alone,
            "prompt_logprobs": max(counts, default=None),
        }
        return replace(
            request,
            sampling={**request.sampling, **own},
            view=replace(request.view, hides_output=is_prompt_alone),
        )

    @property
    def echoes_logprobs(self) -> bool:
        return self._echoed is not None

    @property
    def _echoed(self) -> int | None:
        """Number of log-probabilities that go with each echoed token."""
        return self.logprobs if self.echo else None


def checked_prompts(prompt: Any) -> list[str | list[int]]:
    """Return a completion's prompts: text or IDs, one or a list of them. Raises for everything
    else."""
    if isinstance(prompt, list) and prompt and all(isinstance(p, str | list) for p in prompt):
        return [_checked_prompt(one) for one in prompt]
    return [_checked_prompt(prompt)]


def _checked_prompt(prompt: Any) -> str | list[int]:
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, list) or not set(map(type, prompt)) <= {int}:
        raise WrongTypeError(
            "prompt: must be a string, a list of token ids, or a list of strings or of such lists",
            param="prompt",
        )
    return prompt


class ChatFields(BaseModel):
    """The fields that decide how a conversation becomes a prompt, besides the messages."""

    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_special_tokens: bool | None = None
    reasoning_effort: str | None = None
    enable_thinking: bool | None = None
    tools: list[Any] | None = None
    tool_choice: str | dict[str, Any] | None = None

    @cached_property
    def functions(self) -> list[dict[str, Any]]:
        """The checked tools. Raises InvalidRequestError."""
        return checked_tools(self.tools or [])

    @cached_property
    def chat_options(self) -> ChatOptions:
        """How the conversation is rendered. Raises InvalidRequestError."""
        continues, adds = bool(self.continue_final_message), self.add_generation_prompt
        named = {"reasoning_effort": self.reasoning_effort, "enable_thinking": self.enable_thinking}
        return ChatOptions(
            # By default an answer begins a new message, unless it continues the last one.
            add_generation_prompt=not continues if adds is None else adds,
            continues_final_message=continues,
            variables=template_variables(named | (self.chat_template_kwargs or {})),
            template=self.chat_template,
            add_special_tokens=bool(self.add_special_tokens),
            tools=self.functions if self.tools and self.tool_choice != "none" else (),
        )


class ChatBody(ChatFields, CommonBody):
    messages: list[dict[str, Any]]
    logprobs: bool | None = None
    top_logprobs: int | None = None
    parallel_tool_calls: bool | None = None
    include_reasoning: bool | None = None

    def to_request(self) -> GenerationRequest:
        num_logprobs = self.top_logprobs or 0
        if num_logprobs:
            self._check_top_logprobs(num_logprobs)
        request = self._to_request(num_logprobs if self.logprobs else None)
        chat = self.chat_options
        answer = AnswerOptions(
            calls=self._calls_asked() if self.tools or self.tool_choice is not None else None,
            includes_reasoning=self.include_reasoning is not False,
            begins_in_prompt=chat.add_generation_prompt or chat.continues_final_message,
        )
        return replace(request, prompt_field="messages", answer=answer)

    def _check_top_logprobs(self, count: int) -> None:
        if not 0 <= count <= MAX_LOGPROBS:
            limits = f"in 0..{MAX_LOGPROBS}"
            raise out_of_range("top_logprobs", count, 0, MAX_LOGPROBS, limits)
        if not self.logprobs:
            raise InvalidRequestError(
                f"top_logprobs={count} needs logprobs=true", param="top_logprobs"
            )

    def _calls_asked(self) -> CallsAsked | None:
        """Return the tool calls that the answer may have; None if it may have none. Raises
        InvalidRequestError."""
        needs_call = self.tool_choice not in (None, "none", "auto")
        calls = CallsAsked(
            tools=self.functions,
            is_required=needs_call,
            name=self._named_function() if needs_call else None,
            allows_many=self.parallel_tool_calls is not False,
        )
        return calls if self.chat_options.tools else None

    def _named_function(self) -> str | None:
        """Return the only function that the answer may call; None for a call of any."""
        choice = self.tool_choice
        named = isinstance(choice, dict) and choice.get("function")
        name = named.get("name") if isinstance(named, dict) else None
        if choice != "required" and not isinstance(name, str):
            raise InvalidRequestError(
                "tool_choice must be none, auto, required, or name a function, "
                f"got {json.dumps(choice):.80}",
                param="tool_choice",
            )
        if not self.tools:
            raise InvalidRequestError(
                f"tool_choice={json.dumps(choice):.80} needs tools",
                param="tools",
                code="missing_required_parameter",
            )
        return name


class TokenizeBody(ChatFields, _Body):
    """A text, or a conversation as the chat route would feed it."""

    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None

    @model_validator(mode="after")
    def _check_input(self) -> TokenizeBody:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("exactly one of prompt and messages is needed")
        return self


class DetokenizeBody(_Body):
    tokens: list[int]


BodyType = TypeVar("BodyType", bound=_Body)


def parse_body(
    kind: type[BodyType],
    raw: bytes,
    unknown: UnknownFields,
    check_entries: Callable[[str, int], None],
) -> BodyType:
    """Read a body of this kind. Raises InvalidRequestError.

    `check_entries` gets the name and the length of a list or an object before its entries are read.
    """
    try:
        # Unlike json it refuses half a character, "\ud800".
        values = from_json(raw.removeprefix(BOM_UTF8))
    except ValueError as error:
        raise InvalidRequestError(f"the body is not JSON: {error}", code="invalid_json") from None
    if not isinstance(values, dict):
        raise WrongTypeError(f"the body must be a JSON object, got {type(values).__name__}")
    for name, field in values.items():
        if isinstance(field, list | dict):
            check_entries(name, len(field))
    try:
        body = kind.model_validate(values)
    except ValidationError as error:
        raise _translate(error) from None
    extras = dict(_extras(body))
    if isinstance(body, CommonBody):
        for path, value in extras.items():
            check_neutral(path, value)
    names = [*(path for path in extras if path not in _KNOWN), *unknown_names(values)]
    if names:
        body._warnings += unknown.warnings(names)
    return body


_KNOWN = NAMES.union(ChatBody.model_fields, CompletionBody.model_fields)


def _extras(body: _Object, where: str = "") -> Iterator[tuple[str, Any]]:
    """Path and value of every field that the body and those inside it do not declare."""
    for name, value in (body.model_extra or {}).items():
        yield f"{where}{name}", value
    for name in type(body).model_fields:
        inner = getattr(body, name)
        if isinstance(inner, _Object):
            yield from _extras(inner, f"{name}.")


def _translate(error: ValidationError) -> Exception:
    first = error.errors(include_url=False)[0]
    param = path_of(first)
    if first["type"].endswith(("_type", "_parsing")):
        return WrongTypeError(describe(first), param=param)
    code = "missing_required_parameter" if first["type"] == "missing" else "invalid_value"
    return InvalidRequestError(describe(first), param=param, code=code)
