"""Turns a caller's sampling fields into SamplingParams. Words become IDs, and every ID is checked.

Names and meanings are those of the HTTP fields, whatever the protocol.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from deployments.text.tokenizer import TextModel
from specdec_core.errors import InvalidRequestError
from specdec_core.sampling_params import SAMPLING_FIELDS, SamplingParams

MAX_BAD_WORD_CHARS = 10_000
"""Maximum characters of all bad words of a request, which are tokenized while others wait."""
MAX_BAD_WORDS = 1024
MAX_STOP_TOKEN_IDS = 128
MAX_LOGIT_BIASES = 1024
"""Maximum entries of a request. A pass pays for each entry, which delays its other rows."""
_LEAST_SEED, _DRAWN = -(2**63), -1
"""OpenAI's minimum seed, and the seed by which vLLM and llama.cpp let the server draw one."""
_NEGATIVE_SEEDS = 2**53
"""Negative seeds are counted down from here. Every JSON reader reads these numbers exactly."""
_ALL = 0
_ALL_FOR_OTHERS = -1
"""The top_k that keeps every token ID on other servers."""
_OWN_NAMES = {field.proto_name: field.name for field in SAMPLING_FIELDS}
"""Names of SamplingParams, by the names in requests."""


def resolve_sampling(
    named: Mapping[str, Any], text: TextModel, base: SamplingParams
) -> SamplingParams:
    """Return `base`, overridden by every entry of `named` that is not None.

    Raises InvalidRequestError.
    """
    named = {**named, "seed": chosen_seed(named.get("seed"))}
    given = {name: value for name, value in named.items() if value is not None}
    _check_counts(given, text)
    words = _ids_of_words(given.pop("bad_words", ()), text)
    words += [text.check_ids(ids, "bad_word_ids") for ids in given.pop("bad_word_ids", ())]
    if words:
        given["bad_words"] = tuple(words)
    for name in {"stop_token_ids", "allowed_token_ids"} & given.keys():
        given[name] = text.check_ids(given[name], name)
    if "logit_bias" in given:
        given["logit_bias"] = _checked_bias(given["logit_bias"], text)
    if given.get("top_k") == _ALL_FOR_OTHERS:
        given["top_k"] = _ALL
    return replace(base, **{_OWN_NAMES.get(name, name): value for name, value in given.items()})


def chosen_seed(seed: int | None) -> int | None:
    """Return the seed that a caller's seed stands for; None if the server draws one."""
    if seed is None or not _LEAST_SEED <= seed < 0:
        return seed
    return None if seed == _DRAWN else seed % _NEGATIVE_SEEDS


def _check_counts(given: Mapping[str, Any], text: TextModel) -> None:
    if not given.get("allowed_token_ids", True):
        raise InvalidRequestError(
            "allowed_token_ids is empty, so that no token can be chosen: "
            "send at least 1 id, or leave it out to allow all",
            param="allowed_token_ids",
        )
    limits = {
        "stop_token_ids": MAX_STOP_TOKEN_IDS,
        "logit_bias": MAX_LOGIT_BIASES,
        "allowed_token_ids": text.vocab_size,
        "bad_words": MAX_BAD_WORDS,
    }
    for name in limits.keys() & given.keys():
        count = len(given[name])
        if count > limits[name]:
            raise InvalidRequestError(
                f"{name} has {count} entries, the limit is {limits[name]}",
                param=name,
                code="array_above_max_length",
            )


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
        raise InvalidRequestError(
            f"bad_words have {num_chars} characters together, the limit is {MAX_BAD_WORD_CHARS}",
            param="bad_words",
            code="string_above_max_length",
        )
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
