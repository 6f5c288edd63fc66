"""The small vocabulary is that of the demo's tokenizer, as far as it reaches."""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Tokenizer

from benchmarks.host_time.served.model_folder import cut_tokenizer

_VOCAB = ["<end>", "a", "b", "c", "ab", "abc", "ca", "<late>"]
_WHOLE: dict[str, Any] = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [
        {
            "id": number,
            "content": _VOCAB[number],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for number in (0, 7)
    ],
    "normalizer": None,
    "pre_tokenizer": None,
    "post_processor": None,
    "decoder": None,
    "model": {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {token: number for number, token in enumerate(_VOCAB)},
        "merges": [["a", "b"], ["ab", "c"], ["c", "a"]],
    },
}


def _tokens(whole: dict[str, Any], text: str) -> list[str]:

    return Tokenizer.from_str(json.dumps(whole)).encode(text).tokens


def test_text_is_split_into_the_tokens_that_are_left() -> None:
    assert _tokens(_WHOLE, "abcca") == ["abc", "ca"]
    assert _tokens(cut_tokenizer(_WHOLE, 5), "abcca") == ["ab", "c", "c", "a"]


def test_control_tokens_above_the_vocabulary_are_gone() -> None:
    cut = cut_tokenizer(_WHOLE, 5)
    assert [token["id"] for token in cut["added_tokens"]] == [0]
    assert max(cut["model"]["vocab"].values()) == 4


def test_the_whole_tokenizer_stays_as_it_was() -> None:
    cut_tokenizer(_WHOLE, 5)
    assert len(_WHOLE["model"]["merges"]) == 3
