"""The bytes of tokens, joined, are the text, whatever the tokenizer is built of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.models import BPE

from deployments.text.detokenizer import token_bytes_of

TEXTS = st.text(st.sampled_from("abc Ġé日🙂\n"), max_size=12)


def _byte_level() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: place for place, letter in enumerate(["<|end|>", *alphabet, "Ġa", "ab"])}
    tokenizer = Tokenizer(BPE(vocab=vocab, merges=[("Ġ", "a"), ("a", "b")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _byte_fallback() -> Tokenizer:
    """As SentencePiece models of Llama come."""
    fallbacks = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces = ["<unk>", *fallbacks, "▁", "a", "b", "c", "ab", "▁a", "é"]
    vocab = {piece: place for place, piece in enumerate(pieces)}
    merges = [("a", "b"), ("▁", "a")]
    model = BPE(vocab=vocab, merges=merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer


@pytest.mark.parametrize("make", [_byte_level, _byte_fallback])
def test_joined_they_are_the_text(make: Callable[[], Tokenizer]) -> None:
    tokenizer = make()
    token_bytes = token_bytes_of(tokenizer)

    @given(TEXTS)
    def check(text: str) -> None:
        ids = tokenizer.encode(text).ids
        assert b"".join(token_bytes(token_id) for token_id in ids).decode() == text
        assert tokenizer.decode(ids) == text

    check()


def test_a_piece_of_other_letters_stands_for_itself() -> None:
    tokenizer = _byte_level()
    tokenizer.add_special_tokens(["<|end▁of▁text|>"])
    token_id = tokenizer.get_vocab()["<|end▁of▁text|>"]
    assert token_bytes_of(tokenizer)(token_id).decode() == "<|end▁of▁text|>"
    assert token_bytes_of(tokenizer)(0) == b"<|end|>"


@pytest.mark.parametrize(
    "decoder", [decoders.Metaspace(), decoders.Sequence([decoders.Metaspace(), decoders.Fuse()])]
)
def test_a_metaspace_is_a_space(decoder: Any) -> None:
    tokenizer = Tokenizer(models.WordLevel({"▁a": 0, "<0x41>": 1}, unk_token="▁a"))
    tokenizer.decoder = decoder
    token_bytes = token_bytes_of(tokenizer)
    assert (token_bytes(0), token_bytes(1)) == (b" a", b"<0x41>")


def test_other_replacements_and_unknown_ids_are_left_alone() -> None:
    tokenizer = Tokenizer(models.WordLevel({"a_b": 0}, unk_token="a_b"))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(Regex("_"), " "), decoders.Replace("a", "x")]
    )
    token_bytes = token_bytes_of(tokenizer)
    assert (token_bytes(0), token_bytes(1)) == (b"a_b", b"")
    tokenizer.decoder = None
    assert token_bytes_of(tokenizer)(0) == b"a_b"
