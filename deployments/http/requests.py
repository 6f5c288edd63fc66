"""Bodies of the OpenAI routes: strict types, known names, clear refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import from_json

from deployments.errors import WrongTypeError
from deployments.http.chat_fields import ChatFields
from deployments.http.resume_ids import checked_resume_ids
from deployments.ingress.ask import Ask, Resume
from deployments.ingress.output import View
from deployments.messages import describe
from deployments.text.sampling_fields import SamplingFields
from deployments.text.structured_output import from_response_format, from_structured_outputs
from deployments.text.tool_calls import checked_tools, forced_call
from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import GrammarSpec
from specdec_core.sampling_params import MAX_LOGPROBS

DEFAULT_COMPLETION_TOKENS = 16
"""OpenAI's default for completions; chat completions take what the context has room for."""

_IGNORED = {
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "parallel_tool_calls",
}
"""Names that change no token: accepted and not looked at."""

_UNSUPPORTED: dict[str, tuple[object, ...]] = {
    "function_call": (None, "none"),
    "functions": (None, []),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "prediction": (None,),
    "length_penalty": (None, 1),
    "suffix": (None, ""),
    "use_beam_search": (None, False),
}
"""Known names that are not supported yet: the values that mean nothing are accepted."""


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", protected_namespaces=())


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
    def asked(self) -> Resume:
        return Resume(
            token_ids=checked_resume_ids(self.token_ids),
            seed=self.seed,
            system_fingerprint=self.system_fingerprint or "",
        )


class CommonBody(_Body, SamplingFields):
    """What completions and chat completions share."""

    model: str | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    speculative: SpeculativeOptions | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
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
    def calls_tools(self) -> bool:
        return False

    @property
    def num_choices(self) -> int:
        return 1 if self.n is None else self.n

    def _ask(self, *, max_tokens: int | None, num_logprobs: int | None) -> Ask:
        if self.prompt_logprobs is not None and self.stream:
            raise InvalidRequestError(
                f"prompt_logprobs={self.prompt_logprobs} is for whole answers: leave stream out, "
                "or take echo with logprobs"
            )
        if self.cache_salt == "":
            raise InvalidRequestError("cache_salt is empty, which keeps nobody out: leave it out")
        speculative = self.speculative or SpeculativeOptions()
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return Ask(
            model=self.model,
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
            view=View(
                shows_special_tokens=self.skip_special_tokens is False,
                includes_stop=bool(self.include_stop_str_in_output),
            ),
            truncate_prompt_tokens=self.truncate_prompt_tokens,
            resume=None if self.resume is None else self.resume.asked,
        )

    def _grammar(self) -> GrammarSpec | None:
        wanted = (
            None if self.response_format is None else from_response_format(self.response_format)
        )
        if self.structured_outputs is None:
            return wanted
        if wanted is not None:
            raise InvalidRequestError("response_format and structured_outputs exclude each other")
        return from_structured_outputs(self.structured_outputs)


class CompletionBody(CommonBody):
    prompt: Any
    add_special_tokens: bool = True
    logprobs: int | None = None
    echo: bool | None = None
    best_of: int | None = None

    def ask(self) -> Ask:
        if self.best_of not in (None, self.num_choices):
            raise InvalidRequestError(
                f"best_of={self.best_of}, n={self.num_choices}: choices are not ranked, "
                "ask for best_of = n or leave it out"
            )
        max_tokens = DEFAULT_COMPLETION_TOKENS if self.max_tokens is None else self.max_tokens
        is_prompt_alone = bool(self.echo) and max_tokens == 0
        max_tokens += is_prompt_alone
        asked = self._ask(max_tokens=max_tokens, num_logprobs=self.logprobs)
        counts = [count for count in (self.prompt_logprobs, self._echoed) if count is not None]
        return replace(
            asked,
            sampling={**asked.sampling, "prompt_logprobs": max(counts, default=None)},
            view=replace(asked.view, hides_output=is_prompt_alone),
        )

    @property
    def echoes_logprobs(self) -> bool:
        return self._echoed is not None

    @property
    def _echoed(self) -> int | None:
        """How many log-probabilities go with each echoed token."""
        return self.logprobs if self.echo else None


class ChatBody(ChatFields, CommonBody):
    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None

    def _grammar(self) -> GrammarSpec | None:
        wanted, forced = super()._grammar(), self._forced_call()
        if wanted is not None and forced is not None:
            raise InvalidRequestError(
                "tool_choice demands a call, so response_format and structured_outputs cannot hold"
            )
        return wanted or forced

    def _forced_call(self) -> GrammarSpec | None:
        choice = self.tool_choice
        if choice in (None, "none", "auto"):
            return None
        named = isinstance(choice, dict) and choice.get("function")
        name = named.get("name") if isinstance(named, dict) else None
        if choice != "required" and not isinstance(name, str):
            raise InvalidRequestError(
                "tool_choice must be none, auto, required, or name a function, "
                f"got {json.dumps(choice):.80}"
            )
        if not self.tools:
            raise InvalidRequestError(f"tool_choice={json.dumps(choice):.80} needs tools")
        return forced_call(checked_tools(self.tools), name)

    def ask(self) -> Ask:
        max_tokens = self.max_completion_tokens
        if max_tokens is None:
            max_tokens = self.max_tokens
        return self._ask(max_tokens=max_tokens, num_logprobs=self._num_logprobs())

    def _num_logprobs(self) -> int | None:
        count = self.top_logprobs or 0
        if not 0 <= count <= MAX_LOGPROBS:
            raise InvalidRequestError(f"top_logprobs must be in 0..{MAX_LOGPROBS}, got {count}")
        if count and not self.logprobs:
            raise InvalidRequestError(f"top_logprobs={count} needs logprobs=true")
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


def parse_body(kind: type[BodyType], raw: bytes) -> BodyType:
    """Raises InvalidRequestError (400) for values, WrongTypeError (422) for types."""
    try:
        values = from_json(raw)  # unlike json it refuses half a character, "\ud800"
    except ValueError as error:
        raise InvalidRequestError(f"the body is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise WrongTypeError(f"the body must be a JSON object, got {type(values).__name__}")
    try:
        body = kind.model_validate(values)
    except ValidationError as error:
        raise _translate(error) from None
    _check_extras(body)
    return body


def _check_extras(body: _Body, where: str = "") -> None:
    for name, value in (body.model_extra or {}).items():
        if name in _IGNORED:
            continue
        if name not in _UNSUPPORTED:
            raise InvalidRequestError(f"unknown field {where}{name}")
        if value not in _UNSUPPORTED[name]:
            neutral = " or ".join(json.dumps(v) for v in _UNSUPPORTED[name] if v is not None)
            hint = f": only {neutral} is" if neutral else ": leave it out, it is not"
            raise InvalidRequestError(f"{name}={json.dumps(value)[:80]}{hint} supported yet")
    for name in type(body).model_fields:
        inner = getattr(body, name)
        if isinstance(inner, _Body):
            _check_extras(inner, f"{name}.")


def _translate(error: ValidationError) -> Exception:
    first = error.errors(include_url=False)[0]
    is_type = first["type"].endswith(("_type", "_parsing"))
    return WrongTypeError(describe(first)) if is_type else InvalidRequestError(describe(first))
