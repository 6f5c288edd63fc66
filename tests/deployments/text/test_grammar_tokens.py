"""Tokens as the grammar library takes them: those that it reads itself, but no special ones."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from deployments.text.grammar_library import tokenizer_of
from deployments.text.tokenizer import TextModel
from tests.deployments.text.answers.asked_walks import model_with

llguidance = pytest.importorskip("llguidance")

END = 2
GRAMMARS = [
    'start: "ab he" "ab" /[a-z ]{0,9}/',
    'start: %json {"enum": ["ab he", {"he": "ab ab"}, ["a", "he"]]}',
    'start: <tool> "ab" | "he ab"',
]


def sentencepiece(*, has_normalizer: bool) -> Tokenizer:
    """Return a tokenizer that puts a space before a text, in one of two ways."""
    letters = [f"<0x{byte:02X}>" for byte in range(256)] + [*"▁abcdefghijklmnopqrstuvwxyz"]
    merges = [("a", "b"), ("▁", "a"), ("▁a", "b"), ("h", "e"), ("▁", "he")]
    pieces = ["<unk>", "<s>", "</s>", *letters, *("".join(pair) for pair in merges)]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    backend = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True))
    if has_normalizer:
        backend.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    backend.add_special_tokens([*pieces[:3], "<tool>"])
    return backend


def walked_alike(first: Any, second: Any, grammar: str, random: Random) -> int:
    """Follow one output in both tokenizers. Returns how many masks were compared."""
    text = llguidance.LLMatcher.grammar_from_lark(grammar)
    one, other = (llguidance.LLMatcher(each, text, log_level=0) for each in (first, second))
    for count in range(60):
        mask = one.compute_logit_bias()
        assert mask == other.compute_logit_bias()
        ids = [i for i, weight in enumerate(mask) if weight]
        if END in ids:
            return count
        token_id = random.choice(ids)
        assert one.consume_token(token_id)
        assert other.consume_token(token_id)
    return 60


@pytest.mark.parametrize("has_normalizer", [False, True])
def test_masks_are_those_of_the_librarys_own_reading(has_normalizer: bool) -> None:
    backend = sentencepiece(has_normalizer=has_normalizer)
    text: TextModel = replace(model_with([]), backend=backend, end_token_ids=frozenset([END]))
    own = llguidance.LLTokenizer(backend.to_str(), n_vocab=text.vocab_size, eos_token=[END])
    ours = tokenizer_of(text)
    ids = range(text.vocab_size)
    assert [own.decode_bytes([i]) for i in ids] == [ours.decode_bytes([i]) for i in ids]
    assert [own.is_special_token(i) for i in ids] == [ours.is_special_token(i) for i in ids]
    walks = [walked_alike(own, ours, one, Random(i)) for one in GRAMMARS for i in range(10)]
    assert sum(walks) > 100
    token_id = backend.token_to_id("<tool>")
    assert token_id in own.tokenize_str("<tool>")
    assert token_id not in ours.tokenize_str("<tool>")
    assert ours.decode_str(ours.tokenize_str("<tool>")) == "<tool>"
