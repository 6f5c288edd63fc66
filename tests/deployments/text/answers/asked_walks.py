"""Random walks over the grammars of whole answers, for a tokenizer with the format's marks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from deployments.text.answers.formats import AnswerFormat
from deployments.text.grammar_library import MatcherFactory, tokenizer_of
from deployments.text.grammar_limits import DEFAULT_LIMITS
from deployments.text.tokenizer import TextModel, load_text_model
from specdec_core.grammar import GrammarSpec
from tests.service.tiny_folder import save_tiny_llama

END = "<|endoftext|>"
_MARK = re.compile(r'<[^<>{}\s="]+>|<\|"\|>|\[/?[A-Z_]+\]')
_FAVOURED = b'"}],<\n'
"""Bytes that bring an answer to its end."""


def marks_of(answer_format: AnswerFormat) -> list[str]:
    """Return the marks that a model of this format has tokens for."""
    texts: list[str] = []
    if answer_format.reasoning is not None:
        reasoning = answer_format.reasoning
        texts += [reasoning.opening, reasoning.closing, reasoning.content_opening]
    if answer_format.calls is not None:
        calls = answer_format.calls
        texts += [calls.before, calls.opening, calls.closing, calls.between, calls.after]
        if calls.parameters is not None:
            parameters = calls.parameters
            texts += [parameters.opening, parameters.closing, parameters.quote]
    return sorted({mark for text in texts for mark in _MARK.findall(text)})


@cache
def _tiny() -> TextModel:
    with TemporaryDirectory() as folder:
        return load_text_model(str(save_tiny_llama(Path(folder))))


def model_with(
    marks: Sequence[str], *, ends: Sequence[str] = (), spelled: Sequence[str] = ()
) -> TextModel:
    """Return a model whose tokens are bytes, marks, and text of `spelled` marks."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*letters, *map(_as_bytes, spelled)]
    backend = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([END, *ends])
    backend.add_tokens([AddedToken(one, special=one[0] == "[", normalized=False) for one in marks])
    end_ids = frozenset(backend.token_to_id(one) for one in (END, *ends))
    return replace(_tiny(), backend=backend, end_token_ids=end_ids)


def _as_bytes(mark: str) -> str:
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    ((piece, _),) = split.pre_tokenize_str(mark)
    return piece


class Walker:
    """Follows one grammar, as often as it is asked to."""

    def __init__(self, text: TextModel, spec: GrammarSpec) -> None:
        factory = MatcherFactory(lambda: tokenizer_of(text), DEFAULT_LIMITS)
        self._matcher = factory.make(spec, has_full_limits=True)
        self._text = text
        ids = text.backend.get_vocab()
        self._marks = {i for piece, i in ids.items() if len(piece) > 1} - text.end_token_ids
        letters = pre_tokenizers.ByteLevel.alphabet()
        pieces = {_as_bytes(chr(byte)) for byte in _FAVOURED} & set(letters)
        self._favoured = {ids[piece] for piece in pieces}

    def ids(self, random: Random, *, longest: int = 2000) -> list[int] | None:
        """Return the tokens of one answer without its end; None if it is not finished by then."""
        matcher = self._matcher.deep_copy()
        output: list[int] = []
        while len(output) < longest:
            token_id = self._next(matcher, random, 0.02 + len(output) / longest)
            if token_id in self._text.end_token_ids:
                return output
            assert matcher.consume_token(token_id), matcher.get_error()
            output.append(token_id)
        return None

    def answer(self, random: Random, *, longest: int = 2000) -> str | None:
        """Return the text of one answer, its special tokens included."""
        ids = self.ids(random, longest=longest)
        return None if ids is None else self._text.decode_all(ids)

    def accepts(self, answer: str) -> bool:
        """Return whether a whole text is an answer."""
        matcher = self._matcher.deep_copy()
        for token_id in self._text.encode_part(answer):
            allowed = matcher.compute_logit_bias()
            if not allowed[token_id] or not matcher.consume_token(token_id):
                return False
        return bool(matcher.is_accepting())

    def _next(self, matcher: Any, random: Random, hurry: float) -> int:
        bias = matcher.compute_logit_bias()
        assert not matcher.is_error(), matcher.get_error()
        allowed = set(np.frombuffer(bias, np.uint8).nonzero()[0].tolist())
        ends = allowed & self._text.end_token_ids
        if ends and (ends == allowed or random.random() < 0.5):
            return min(ends)
        allowed -= self._text.end_token_ids
        for favoured in (allowed & self._marks, allowed & self._favoured):
            if favoured and random.random() < hurry:
                return random.choice(sorted(favoured))
        return random.choice(sorted(allowed))
