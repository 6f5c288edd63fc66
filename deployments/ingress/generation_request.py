"""A client's request, whatever the protocol, before and after it was checked.

Sampling fields have the names and meanings of HTTP, whatever the protocol. Words become IDs, and
every ID is checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from deployments.text.answers.asking import CallsAsked
from deployments.text.answers.reading import AnswerReader, Answers
from deployments.text.tokenizer import TextModel
from specdec_core.errors import InvalidRequestError
from specdec_core.request import Request
from specdec_core.sampling_params import SAMPLING_FIELDS, SamplingParams

MAX_BAD_WORD_CHARS = 10_000
"""Maximum characters of all bad words of a request, which are tokenized while others wait."""
MAX_ENTRIES = {"stop_token_ids": 128, "logit_bias": 1024, "bad_words": 1024}
"""Maximum entries of a request, by field. A pass pays for each, which delays its other rows."""
_TOKEN_FIELDS = frozenset({*MAX_ENTRIES, "allowed_token_ids"})
"""Fields that hold token IDs, or words that become token IDs."""
_LEAST_SEED, _DRAWN = -(2**63), -1
"""OpenAI's minimum seed, and the seed by which vLLM and llama.cpp let the server draw one."""
_NEGATIVE_SEEDS = 2**53
"""Negative seeds are counted down from here. Every JSON reader reads these numbers exactly."""
_ALL = 0
_ALL_FOR_OTHERS = -1
"""The top_k that keeps every token ID on other servers."""
_OWN_NAMES = {field.proto_name: field.name for field in SAMPLING_FIELDS}
"""Names of SamplingParams, by the names in requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """Options that decide which tokens become text."""

    shows_special_tokens: bool = False
    hidden_tokens: Mapping[int, str] | None = None
    """Special tokens that are left out of the text. None: all special tokens."""
    includes_stop: bool = False
    """The text includes the stop string, or the text of the stop token ID, that ended the
    output."""
    hides_output: bool = False
    """No token is returned, because the caller asked for the prompt alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """Options of a chat for its answers."""

    calls: CallsAsked | None = None
    """None: the request has no tools, or declines them."""
    includes_reasoning: bool = True
    begins_in_prompt: bool = True
    """The prompt ends with the beginning of the answer."""

    @property
    def needs_call(self) -> bool:
        """Whether the answer must be a call."""
        return self.calls is not None and self.calls.is_required


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How the answers to one chat are read."""

    answers: Answers
    prompt_end: str
    options: AnswerOptions
    is_constrained: bool = False
    """The request has a grammar for the content."""

    def reader(self) -> AnswerReader:
        """Return a reader for one of the answers."""
        calls = self.options.calls
        return self.answers.reader(
            self.prompt_end,
            () if calls is None else calls.tools,
            is_constrained=self.is_constrained,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """The part of an answer that a client received before its stream broke."""

    token_ids: Sequence[Sequence[int]]
    """Token IDs received of each choice."""
    seed: int | None = None
    """Seed in the answer's first chunk."""
    system_fingerprint: str = ""
    """System fingerprint in the answer's first chunk. Empty: not compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """A client's request, in either protocol. None: the client did not set the field."""

    sampling: Mapping[str, Any] = field(default_factory=dict)
    """Input of `resolve_sampling`."""
    stop: Sequence[str] = ()
    speculation_enabled: bool = True
    num_draft_tokens: int | None = None
    spec_method: str | None = None
    priority: int = 0
    cache_salt: str = ""
    client: str = ""
    """Name of the API key."""
    request_id: str = ""
    timeout_s: float | None = None
    view: OutputOptions = field(default_factory=OutputOptions)
    truncate_prompt_tokens: int | None = None
    """Number of token IDs to keep, from the end of the prompt."""
    resume: Resume | None = None
    answer: AnswerOptions | None = None
    """None: the answer's text is not read."""
    reading: Reading | None = None
    """Derived from `answer` and the prompt."""
    prompt_field: str = "prompt"
    max_tokens_field: str = "max_tokens"
    """The client's names of two fields, for error messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A checked request, ready to run."""

    request: Request
    stop: tuple[str, ...]
    view: OutputOptions
    reading: Reading | None = None
    """None: the text is the content."""
    choice: int = 0
    """Index among the choices of the same prompt."""


def resolve_sampling(
    named: Mapping[str, Any], text: TextModel, base: SamplingParams
) -> SamplingParams:
    """Return `base`, overridden by all of `named` but None. Raises InvalidRequestError."""
    named = {**named, "seed": chosen_seed(named.get("seed"))}
    word_ids = named.pop("bad_word_ids", None) or ()
    given = {_OWN_NAMES.get(k, k): value for k, value in named.items() if value is not None}
    if word_ids or not _TOKEN_FIELDS.isdisjoint(given):
        given = _with_checked_ids(given, word_ids, text)
    if given.get("top_k") == _ALL_FOR_OTHERS:
        given["top_k"] = _ALL
    return replace(base, **given)


def chosen_seed(seed: int | None) -> int | None:
    """Return the seed that a caller's seed stands for; None if the server draws one."""
    if seed is None or not _LEAST_SEED <= seed < 0:
        return seed
    return None if seed == _DRAWN else seed % _NEGATIVE_SEEDS


def _with_checked_ids(
    given: dict[str, Any], word_ids: Iterable[Sequence[int]], text: TextModel
) -> dict[str, Any]:
    """Return the fields with words as token IDs, `word_ids` among them, and all IDs checked."""
    _check_counts(given, text)
    words = _ids_of_words(given.pop("bad_words"), text) if "bad_words" in given else []
    for ids in word_ids:
        words.append(text.check_ids(ids, "bad_word_ids"))
    if words:
        given["bad_words"] = tuple(words)
    for name in ("stop_token_ids", "allowed_token_ids"):
        if name in given:
            given[name] = text.check_ids(given[name], name)
    if "logit_bias" in given:
        given["logit_bias"] = _checked_bias(given["logit_bias"], text)
    return given


def _check_counts(given: Mapping[str, Any], text: TextModel) -> None:
    if not given.get("allowed_token_ids", True):
        raise InvalidRequestError(
            "allowed_token_ids is empty, so that no token can be chosen: "
            "send at least 1 id, or leave it out to allow all",
            param="allowed_token_ids",
        )
    for name, value in given.items():
        limit = text.vocab_size if name == "allowed_token_ids" else MAX_ENTRIES.get(name)
        if limit is not None and len(value) > limit:
            raise too_long(f"{name} has {len(value)} entries", limit, name, "array")


def too_long(
    problem: str, limit: int | str, param: str, kind: Literal["array", "string"] = "string"
) -> InvalidRequestError:
    """Return the error for a field that is too long. `problem` names it and its length."""
    message, code = f"{problem}, the limit is {limit}", f"{kind}_above_max_length"
    return InvalidRequestError(message, param=param, code=code)


def _checked_bias(
    bias: Mapping[str, float] | Mapping[int, float], text: TextModel
) -> tuple[tuple[int, float], ...]:
    """Return the biases in ascending order of their token IDs. JSON has strings as keys."""
    by_id = {_token_id(key): value for key, value in bias.items()}
    return tuple((i, by_id[i]) for i in text.check_ids(sorted(by_id), "logit_bias"))


def _token_id(key: str | int) -> int:
    if not re.fullmatch("0|[1-9][0-9]{0,9}", str(key)):
        raise InvalidRequestError(
            f"logit_bias: {str(key)[:40]!r} is not a token id", param="logit_bias"
        )
    return int(key)


def _ids_of_words(words: Sequence[str], text: TextModel) -> list[tuple[int, ...]]:
    num_chars = sum(map(len, words))
    if num_chars > MAX_BAD_WORD_CHARS:
        problem = f"bad_words have {num_chars} characters together"
        raise too_long(problem, MAX_BAD_WORD_CHARS, "bad_words")
    return [ids for word in words for ids in _forms(word, text)]


def _forms(word: str, text: TextModel) -> Iterable[tuple[int, ...]]:
    """Return a word's token IDs at the start of a text and after a space, as vLLM forms them.

    The second form is left out only if banning the first form bans it as well. This is so if the
    space is a separate token. vLLM leaves the second form out whenever the lengths differ, and so
    misses some words.
    """
    bare = word.lstrip()
    if not bare:
        raise InvalidRequestError(
            "a bad word is empty: at least 1 character is needed", param="bad_words"
        )
    ids, behind_space = text.encode_part(bare), text.encode_part(f" {bare}")
    return [ids] if behind_space[-len(ids) :] == ids else [ids, behind_space]
