"""Sampling parameters of a request: one frozen record, whose fields are declared once.

HTTP, gRPC, the wire, the command line and docs/api.md read the declarations in SAMPLING_FIELDS. A
new parameter needs a field here and a field of the same name in generation.proto (then run
proto/generate.sh). If it changes logits, it has an `effect`, and an entry of LOGIT_PROCESSORS
samples by it (specdec_core/sampling/logit_processors.py).

SamplingRules are sent once to every replica that a sequence visits. Nothing here needs torch, so
that callers that set a seed need none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import Field, dataclass, field, fields, replace
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, get_type_hints

from specdec_core.errors import InvalidRequestError, out_of_range
from specdec_core.grammar import Grammar, GrammarCompiler, GrammarSpec

_T = TypeVar("_T")

MAX_SEED = 2**63 - 1
_MASK64 = (1 << 64) - 1
_GOLDEN64 = 0x9E3779B97F4A7C15
MAX_TOP_K = 2**31 - 1
MAX_BIAS = 100.0
MAX_LOGPROBS = 20
MIN_REPETITION, MAX_REPETITION = 0.01, 100.0
"""Limits of the repetition penalty. Beyond them a logit may become infinite, or all of them 0, in
float32."""


class Limits(NamedTuple):
    """Limits of a number, both included."""

    low: float
    high: float
    text: str
    """The limits in errors and docs, such as `in 0..100`."""


class Effect(Enum):
    """Effect of a parameter on logits, unless it has its default."""

    NONE = "none"
    LOGITS = "logits"
    """A logit processor uses it."""
    HISTORY = "history"
    """A logit processor uses it, and the IDs before the position as well."""


class SamplingField(NamedTuple):
    """Declaration of one field of SamplingParams."""

    help: str
    limits: Limits | None = None
    """Limits of the number, if it has limits of its own."""
    proto_name: str = ""
    """Name in generation.proto, by default that of the field. Errors about the limits use it."""
    has_flag: bool = False
    """True if the command line has a flag for it."""
    generation_config_key: str | None = None
    """Key in a model's generation_config.json that sets the default of requests."""
    effect: Effect = Effect.NONE
    name: str = ""
    """Name of the field. SAMPLING_FIELDS reads it, the type and the default from the record."""
    type: Any = None
    """Annotated type, such as `float` or `int | None`."""
    default: Any = None

    @property
    def flag(self) -> str | None:
        """Flag of the command line, such as `--top-p`."""
        return "--" + self.proto_name.replace("_", "-") if self.has_flag else None


def sampling_field(default: _T, help: str, limits: Limits | None = None, **others: Any) -> _T:
    """Return a field of SamplingParams. The arguments after its default are those of
    SamplingField."""
    return field(default=default, metadata=SamplingField(help, limits, **others)._asdict())


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Rules for sampling the tokens of one request, and for its end."""

    temperature: float = sampling_field(
        1.0,
        "Sampling temperature. 0 is greedy: the most probable token always wins.",
        Limits(0.0, 100.0, "in 0..100"),
        has_flag=True,
        generation_config_key="temperature",
    )
    top_k: int = sampling_field(
        0,
        "Keep the k most probable tokens. 0 keeps all.",
        Limits(0, MAX_TOP_K, f"in 0 (off)..{MAX_TOP_K}"),
        has_flag=True,
        generation_config_key="top_k",
    )
    top_p: float = sampling_field(
        1.0,
        "Keep the smallest set of most probable tokens whose probabilities sum to at least p.",
        Limits(math.ulp(0.0), 1.0, "in (0, 1]"),
        has_flag=True,
        generation_config_key="top_p",
    )
    min_p: float = sampling_field(
        0.0,
        "Keep tokens at least min_p times as probable as the most probable token.",
        Limits(0.0, 1.0, "in 0..1"),
        has_flag=True,
        generation_config_key="min_p",
    )
    seed: int = sampling_field(
        0,
        "Seed of the sampling noise. The same seed gives the same tokens.",
        Limits(0, MAX_SEED, f"in 0..{MAX_SEED}"),
        has_flag=True,
    )
    max_tokens: int = sampling_field(
        16,
        "Maximum tokens of an output.",
        Limits(1, math.inf, "at least 1"),
        has_flag=True,
        generation_config_key="max_new_tokens",
    )
    presence_penalty: float = sampling_field(
        0.0,
        "Subtracted from the logits of tokens that are in the output already.",
        Limits(-2.0, 2.0, "in -2..2"),
        has_flag=True,
        effect=Effect.HISTORY,
    )
    frequency_penalty: float = sampling_field(
        0.0,
        "Subtracted from the logit of a token once per occurrence in the output.",
        Limits(-2.0, 2.0, "in -2..2"),
        has_flag=True,
        effect=Effect.HISTORY,
    )
    repetition_penalty: float = sampling_field(
        1.0,
        "Divides positive and multiplies negative logits of tokens in the prompt or output.",
        Limits(MIN_REPETITION, MAX_REPETITION, f"in {MIN_REPETITION:g}..{MAX_REPETITION:g}"),
        has_flag=True,
        generation_config_key="repetition_penalty",
        effect=Effect.HISTORY,
    )
    logit_bias: tuple[tuple[int, float], ...] = sampling_field(
        (), "Numbers added to the logits of token IDs, each in -100..100.", effect=Effect.LOGITS
    )
    min_tokens: int = sampling_field(
        0,
        "Minimum tokens of an output, at most max_tokens. No token ends the output before.",
        has_flag=True,
        effect=Effect.LOGITS,
    )
    allowed_token_ids: tuple[int, ...] = sampling_field(
        (), "Only these token IDs may be chosen. By default all may be.", effect=Effect.LOGITS
    )
    bad_words: tuple[tuple[int, ...], ...] = sampling_field(
        (),
        "Token sequences that must not appear in the output. "
        "The last ID of each is banned wherever the IDs before it have just been emitted.",
        proto_name="bad_word_ids",
        effect=Effect.HISTORY,
    )
    grammar: GrammarSpec | None = sampling_field(
        None,
        "Grammar of the output, applied at every position. "
        "The model's end IDs are allowed only where the output may end.",
        proto_name="structured_output",
        effect=Effect.HISTORY,
    )
    num_logprobs: int | None = sampling_field(
        None,
        "Number of most probable tokens whose log-probabilities are reported with each token. "
        "The values are those of the model, before all other parameters apply.",
        Limits(0, MAX_LOGPROBS, f"in 0..{MAX_LOGPROBS}"),
        proto_name="logprobs",
        has_flag=True,
    )
    num_prompt_logprobs: int | None = sampling_field(
        None,
        "Same as logprobs, for every prompt token but the first, which has no predecessor.",
        Limits(0, MAX_LOGPROBS, f"in 0..{MAX_LOGPROBS}"),
        proto_name="prompt_logprobs",
    )
    stop_token_ids: tuple[int, ...] = sampling_field(
        (), "Token IDs that end the output, in addition to the model's own. The output has the ID."
    )
    ignore_eos: bool = sampling_field(
        False, "Do not end the output at the model's own end tokens.", has_flag=True
    )

    def __post_init__(self) -> None:
        for name, shown_name, (low, high, text) in _LIMITED:
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise out_of_range(shown_name, value, low, high, text)
        if not 0 <= self.min_tokens <= self.max_tokens:
            limit = self.max_tokens
            raise out_of_range("min_tokens", self.min_tokens, 0, limit, f"in 0..max_tokens={limit}")
        if self.stop_token_ids or self.allowed_token_ids or self.bad_words or self.logit_bias:
            self._check_ids()
        if self.grammar is not None:
            self._check_grammar()

    def _check_ids(self) -> None:
        """Check the fields that name token IDs."""
        for token_id, bias in self.logit_bias:
            if token_id < 0 or not -MAX_BIAS <= bias <= MAX_BIAS:
                raise InvalidRequestError(
                    f"logit_bias must map ids to -{MAX_BIAS}..{MAX_BIAS}, got {token_id}: {bias}",
                    param="logit_bias",
                )
        biased_ids = [token_id for token_id, _ in self.logit_bias]
        if len(set(biased_ids)) < len(biased_ids):
            raise InvalidRequestError(
                f"logit_bias names an id twice: {biased_ids}", param="logit_bias"
            )
        for name in ("stop_token_ids", "allowed_token_ids"):
            wrong = next((i for i in getattr(self, name) if i < 0), None)
            if wrong is not None:
                raise InvalidRequestError(f"{name} must not be negative, got {wrong}", param=name)
        if not all(word and min(word) >= 0 for word in self.bad_words):
            raise InvalidRequestError(
                "bad_words must be non-empty lists of non-negative ids", param="bad_words"
            )

    def _check_grammar(self) -> None:
        """Check that no other field decides where a structured output ends."""
        if self.ignore_eos or self.min_tokens:
            raise InvalidRequestError(
                "structured output ends where its grammar ends: leave ignore_eos and "
                "min_tokens out",
                param="ignore_eos" if self.ignore_eos else "min_tokens",
            )

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0


def _declared(one: Field[Any], annotated: Any) -> SamplingField:
    about = SamplingField(**one.metadata)
    return about._replace(
        name=one.name,
        type=annotated,
        default=one.default,
        proto_name=about.proto_name or one.name,
    )


_TYPES = get_type_hints(SamplingParams)
SAMPLING_FIELDS = tuple(_declared(one, _TYPES[one.name]) for one in fields(SamplingParams))
"""Declarations of the fields of SamplingParams, in their order."""
_LIMITED = [(one.name, one.proto_name, one.limits) for one in SAMPLING_FIELDS if one.limits]


_LOGIT_DEFAULTS = {
    one.name: one.default for one in SAMPLING_FIELDS if one.effect is not Effect.NONE
}
_HISTORY_FIELDS = {one.name for one in SAMPLING_FIELDS if one.effect is Effect.HISTORY}


@dataclass(frozen=True)
class SamplingRules:
    """One request's rules. With the IDs before a position they determine the token there."""

    params: SamplingParams
    prompt_len: int
    """Number of prompt IDs. All later IDs count as output, whichever attempt of the request emitted
    them."""
    stop_ids: frozenset[int] = frozenset()
    """Every ID that ends the request. min_tokens bans these."""
    cache_salt: str = ""
    """Only sequences with an equal salt share cached blocks. No choice depends on it."""
    grammar: Grammar | None = field(default=None, compare=False)
    """Compiled grammar of the parameters. It is never sent."""

    # Both are cached, because each row reads them several times.
    @cached_property
    def logit_fields(self) -> frozenset[str]:
        """Names of the parameters that change logits, because they differ from their defaults."""
        return frozenset(
            name
            for name, default in _LOGIT_DEFAULTS.items()
            if getattr(self.params, name) != default
        )

    @cached_property
    def needs_history(self) -> bool:
        """True if a choice depends on the IDs before it."""
        return not self.logit_fields.isdisjoint(_HISTORY_FIELDS)

    @property
    def failure(self) -> str | None:
        """The reason why these rules allow no further token, or None."""
        return None if self.grammar is None else self.grammar.failure

    def compiled(self, compiler: GrammarCompiler | None) -> SamplingRules:
        """Return the rules with a compiled grammar. Raises InvalidRequestError if there is no
        compiler, or if it cannot read the grammar."""
        if self.params.grammar is None:
            return self
        if compiler is None:
            raise InvalidRequestError("structured output is not supported here")
        return replace(self, grammar=compiler(self.params.grammar))


class SampleRow(NamedTuple):
    """Rules and position of the token that is sampled from a row of logits."""

    rules: SamplingRules
    position: int
    """Absolute place of the token in its sequence, prompt included."""
    history: Sequence[int] = ()
    """IDs of the sequence from its start; those before `position` count. It may be longer, so that
    the rows of a proposal share one. It may be empty for rules that need none."""


def mix64(seed: int, counter: int) -> int:
    """Return an unsigned 64-bit hash of two non-negative integers; splitmix64's finaliser,
    twice."""
    return _finalise64(_finalise64(seed + _GOLDEN64) + _GOLDEN64 * (counter + 1))


def derive_seed(seed: int, choice: int) -> int:
    """Return the seed of choice j of n; choice 0 keeps the request's own. Below 2^63, as every
    seed."""
    return seed if choice == 0 else mix64(seed, choice) >> 1


def _finalise64(x: int) -> int:
    x &= _MASK64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _MASK64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _MASK64
    return x ^ (x >> 31)
