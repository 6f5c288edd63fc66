"""Bodies of the OpenAI routes: strict types, known names, clear refusals."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError, model_validator
from pydantic_core import from_json

from deployments.api.http.chat_fields import ChatFields, checked_resume_ids
from deployments.api.http.known_fields import NAMES, check_neutral
from deployments.api.http.unknown_fields import UnknownFields, unknown_names
from deployments.errors import WrongTypeError
from deployments.ingress.answer import AnswerOptions
from deployments.ingress.generation_request import GenerationRequest, Resume
from deployments.ingress.output import OutputOptions
from deployments.text.answers.asking import CallsAsked
from deployments.text.sampling_fields import SamplingFields
from deployments.text.structured_output import (
    choice,
    from_response_format,
    from_structured_outputs,
    json_schema,
    lark,
    regex,
)
from deployments.validation_errors import describe, path_of
from specdec_core.errors import InvalidRequestError, check_range
from specdec_core.grammar import GrammarSpec
from specdec_core.sampling_params import MAX_LOGPROBS

DEFAULT_COMPLETION_TOKENS = 16
"""OpenAI's default for completions; chat completions take what the context has room for."""

_OLDER_NAMES: Mapping[str, Callable[[Any, str], GrammarSpec]] = {
    "guided_json": json_schema,
    "guided_regex": regex,
    "guided_choice": choice,
    "guided_grammar": lark,
    "json_schema": json_schema,
    "regex": regex,
}
"""Fields of older vLLM, llama.cpp and SGLang, each for one kind of structured output."""


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", protected_namespaces=())

    _warnings: list[str] = PrivateAttr(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _leave_null_out(cls, values: Any) -> Any:
        """null means that a field is left out, in every body and in the objects inside it."""
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if value is not None}

    @property
    def warnings(self) -> Sequence[str]:
        """The response's warnings about unknown names."""
        return self._warnings


class StreamOptions(_Body):
    include_usage: bool = False
    continuous_usage_stats: bool = False


class SpeculativeOptions(_Body):
    enabled: bool = True
    num_speculative_tokens: int | None = None
    method: str | None = None


class ResumeOptions(_Body):
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


class CommonBody(_Body, SamplingFields):
    """Fields that completions and chat completions share."""

    model: str | None = None
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

    @property
    def num_choices(self) -> int:
        return 1 if self.n is None else self.n

    @property
    def most_tokens(self) -> int | None:
        """Maximum tokens to emit; if both names are there, the newer one holds."""
        newer = self.max_completion_tokens
        return self.max_tokens if newer is None else newer

    def _to_request(self, *, max_tokens: int | None, num_logprobs: int | None) -> GenerationRequest:
        if self.prompt_logprobs is not None and self.stream:
            raise InvalidRequestError(
                f"prompt_logprobs={self.prompt_logprobs} does not support streams: leave "
                "stream out, or use echo with logprobs",
                param="prompt_logprobs",
                code="unsupported_value",
            )
        if self.cache_salt == "":
            raise InvalidRequestError(
                "cache_salt is empty and would share the cache with every request: leave it out",
                param="cache_salt",
            )
        speculative = self.speculative or SpeculativeOptions()
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return GenerationRequest(
            sampling=self.named_sampling
            | {
                "max_tokens": max_tokens,
                "logprobs": num_logprobs,
                "prompt_logprobs": self.prompt_logprobs,
                "grammar": self._grammar(),
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
            max_tokens_field=(
                "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"
            ),
        )

    def _grammars(self) -> dict[str, GrammarSpec]:
        """Grammars of the answer, by the field that asks for each."""
        grammars: dict[str, GrammarSpec | None] = {}
        if self.response_format is not None:
            grammars["response_format"] = from_response_format(self.response_format)
        if self.structured_outputs is not None:
            grammars["structured_outputs"] = from_structured_outputs(self.structured_outputs)
        for name, read in _OLDER_NAMES.items():
            value = getattr(self, name)
            if value is not None:
                grammars[name] = read(value, name)
        return {name: grammar for name, grammar in grammars.items() if grammar is not None}

    def _grammar(self) -> GrammarSpec | None:
        grammars = self._grammars()
        if len(grammars) > 1:
            names = " and ".join(grammars)
            raise InvalidRequestError(f"{names} exclude each other", param=next(iter(grammars)))
        return next(iter(grammars.values()), None)


class CompletionBody(CommonBody):
    prompt: Any
    add_special_tokens: bool = True
    logprobs: int | None = None
    echo: bool | None = None
    best_of: int | None = None

    def to_request(self) -> GenerationRequest:
        if self.best_of not in (None, self.num_choices):
            raise InvalidRequestError(
                f"best_of={self.best_of} must equal n={self.num_choices}, because choices "
                "are not ranked: set best_of to n or leave it out",
                param="best_of",
                code="unsupported_value",
            )
        most_tokens = self.most_tokens
        max_tokens = DEFAULT_COMPLETION_TOKENS if most_tokens is None else most_tokens
        is_prompt_alone = bool(self.echo) and max_tokens == 0
        max_tokens += is_prompt_alone
        request = self._to_request(max_tokens=max_tokens, num_logprobs=self.logprobs)
        counts = [count for count in (self.prompt_logprobs, self._echoed) if count is not None]
        return replace(
            request,
            sampling={**request.sampling, "prompt_logprobs": max(counts, default=None)},
            view=replace(request.view, hides_output=is_prompt_alone),
        )

    @property
    def echoes_logprobs(self) -> bool:
        return self._echoed is not None

    @property
    def _echoed(self) -> int | None:
        """Number of log-probabilities that go with each echoed token."""
        return self.logprobs if self.echo else None


class ChatBody(ChatFields, CommonBody):
    messages: list[dict[str, Any]]
    logprobs: bool | None = None
    top_logprobs: int | None = None
    parallel_tool_calls: bool | None = None
    include_reasoning: bool | None = None

    def _options(self) -> AnswerOptions:
        is_required, name = self._demand()
        calls = CallsAsked(
            tools=self.functions,
            is_required=is_required,
            name=name,
            allows_many=self.parallel_tool_calls is not False,
        )
        return AnswerOptions(
            calls=calls if self.calls_tools else None,
            includes_reasoning=self.include_reasoning is not False,
            begins_in_prompt=self.begins_in_prompt,
        )

    def _demand(self) -> tuple[bool, str | None]:
        """Return whether the answer must call a function, and which one if only one may do."""
        choice = self.tool_choice
        if choice in (None, "none", "auto"):
            return False, None
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
        return True, name

    def to_request(self) -> GenerationRequest:
        request = self._to_request(max_tokens=self.most_tokens, num_logprobs=self._num_logprobs())
        return replace(request, prompt_field="messages", answer=self._options())

    def _num_logprobs(self) -> int | None:
        count = self.top_logprobs or 0
        check_range("top_logprobs", count, 0, MAX_LOGPROBS, f"in 0..{MAX_LOGPROBS}")
        if count and not self.logprobs:
            raise InvalidRequestError(
                f"top_logprobs={count} needs logprobs=true", param="top_logprobs"
            )
        return count if self.logprobs else None


class TokenizeBody(ChatFields, _Body):
    """A text, or a conversation as the chat route would feed it."""

    model: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None

    @model_validator(mode="after")
    def _check_input(self) -> TokenizeBody:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("exactly one of prompt and messages is needed")
        return self


class DetokenizeBody(_Body):
    model: str | None = None
    tokens: list[int]


BodyType = TypeVar("BodyType", bound=_Body)


def parse_body(
    kind: type[BodyType],
    raw: bytes,
    unknown: UnknownFields,
    check_entries: Callable[[str, int], None] | None = None,
) -> BodyType:
    """Read a body of this kind. Raises InvalidRequestError.

    `check_entries` refuses lists and objects that are too long, by the names of their fields,
    before the types of their entries are checked.
    """
    try:
        values = from_json(
            raw.removeprefix(BOM_UTF8)
        )  # unlike json it refuses half a character, "\ud800"
    except ValueError as error:
        raise InvalidRequestError(f"the body is not JSON: {error}", code="invalid_json") from None
    if not isinstance(values, dict):
        raise WrongTypeError(f"the body must be a JSON object, got {type(values).__name__}")
    for name, field in values.items():
        if check_entries is not None and isinstance(field, list | dict):
            check_entries(name, len(field))
    try:
        body = kind.model_validate(values)
    except ValidationError as error:
        raise _translate(error) from None
    extras = list(_extras(body))
    names = [path for path, _ in extras if path not in _KNOWN]
    if isinstance(body, CommonBody):
        for path, value in extras:
            check_neutral(path, value)
    body._warnings += unknown.warnings(names + unknown_names(dict(body)))
    return body


_KNOWN = NAMES.union(ChatBody.model_fields, CompletionBody.model_fields)


def _extras(body: _Body, where: str = "") -> Iterator[tuple[str, Any]]:
    """Path and value of every field that the body and those inside it do not declare."""
    for name, value in (body.model_extra or {}).items():
        yield f"{where}{name}", value
    for name in type(body).model_fields:
        inner = getattr(body, name)
        if isinstance(inner, _Body):
            yield from _extras(inner, f"{name}.")


def _translate(error: ValidationError) -> Exception:
    first = error.errors(include_url=False)[0]
    param = path_of(first)
    if first["type"].endswith(("_type", "_parsing")):
        return WrongTypeError(describe(first), param=param)
    code = "missing_required_parameter" if first["type"] == "missing" else "invalid_value"
    return InvalidRequestError(describe(first), param=param, code=code)
