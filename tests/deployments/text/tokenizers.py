"""Small tokenizers of every kind of decoder that models come with."""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from deployments.text.tokenizer import TextModel, load_text_model

SPECIAL = ("<s>", "</s>", "<|im_start|>", "<|im_end|>")
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
_LETTERS = [*string.ascii_letters, *".<|_>[]\n▁"]
_WORDS = ["▁The", "▁capital", "▁of", "▁France", "▁is", "▁Paris"]


def _merges(words: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Every word letter by letter: its pieces, and how they are merged."""
    pieces, merges = list[str](), list[tuple[str, str]]()
    for word in words:
        for end in range(2, len(word) + 1):
            if word[:end] not in pieces:
                pieces.append(word[:end])
                merges.append((word[: end - 1], word[end - 1]))
    return pieces, merges


def _sentence_piece() -> Tokenizer:
    pieces, merges = _merges(_WORDS)
    tokens = ["<unk>", *_BYTES, *dict.fromkeys(_LETTERS), *pieces]
    vocab = {token: place for place, token in enumerate(dict.fromkeys(tokens))}
    return Tokenizer(
        models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )


def llama_2() -> Tokenizer:
    """As Llama 2's, Mistral's and TinyLlama's tokenizer.json."""
    tokenizer = _sentence_piece()
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return tokenizer


def metaspace(scheme: str) -> Tokenizer:
    tokenizer = _sentence_piece()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=scheme)]
    )
    return tokenizer


def byte_level() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces, merges = _merges([word.replace("▁", "Ġ") for word in _WORDS])
    vocab = {token: place for place, token in enumerate([*alphabet, *pieces])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def across_characters() -> Tokenizer:
    """Some tokens of a byte-level BPE end one character and begin the next."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    crossing = ("¥", "æ")  # the last byte of 日 and its first
    tokens = [*sorted(alphabet), "".join(crossing)]
    vocab = {token: place for place, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[crossing]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def word_piece() -> Tokenizer:
    letters = [f"{prefix}{letter}" for letter in "Thecapitlofrns.Pu日🙂é" for prefix in ("", "##")]
    words = [word.removeprefix("▁") for word in _WORDS]
    vocab = {token: place for place, token in enumerate(dict.fromkeys(["[UNK]", *letters, *words]))}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    return tokenizer


def end_of_word() -> Tokenizer:
    """As the first GPT's: a mark at the end of each word becomes a space."""
    letters = list("Thecapitlofrns.Pu日🙂é")
    vocab = {token: place for place, token in enumerate([*letters, *(f"{x}</w>" for x in letters)])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    return tokenizer


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "llama 2": llama_2,
    "metaspace first": lambda: metaspace("first"),
    "metaspace always": lambda: metaspace("always"),
    "metaspace never": lambda: metaspace("never"),
    "byte level": byte_level,
    "across characters": across_characters,
    "word piece": word_piece,
    "end of word": end_of_word,
}


def text_model(kind: str, folder: Path, *, begins: bool = False) -> TextModel:
    """A model of one kind of tokenizer. `begins`: encoding puts <s> before each text."""
    tokenizer = KINDS[kind]()
    tokenizer.add_special_tokens(list(SPECIAL))
    if begins:
        start = tokenizer.token_to_id("<s>")
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", start)]
        )
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 512}))
    return load_text_model(str(folder))
