"""A text model of fifty letters, so that text shows the fake replica's ids one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deployments.text.chat_rendering import compile_template
from deployments.text.detokenizer import token_bytes_of
from deployments.text.tokenizer import TextModel
from tests.deployments.fake_replica import VOCAB_SIZE

_FIRST = ord("0")


@dataclass
class _Encoding:
    ids: list[int]


class FakeBackend:
    """Id i is the i-th letter from '0' on; other letters are id 0."""

    decoder = None

    def encode(self, sequence: str, *, add_special_tokens: bool) -> _Encoding:
        ids = [ord(letter) - _FIRST for letter in sequence]
        return _Encoding([i if 0 <= i < VOCAB_SIZE else 0 for i in ids])

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        return "".join(chr(_FIRST + i) for i in ids)

    def encode_batch_fast(self, input: Sequence[str], *, add_special_tokens: bool) -> list[Any]:
        return [self.encode(one, add_special_tokens=add_special_tokens) for one in input]

    def decode_batch(self, sequences: Sequence[Sequence[int]], skip_special_tokens: bool) -> Any:
        return [self.decode(ids, skip_special_tokens) for ids in sequences]

    def id_to_token(self, id: int) -> str:
        return chr(_FIRST + id)

    def get_vocab_size(self) -> int:
        return VOCAB_SIZE

    def get_added_tokens_decoder(self) -> dict[int, Any]:
        return {}

    def get_vocab(self) -> dict[str, int]:
        return {chr(_FIRST + i): i for i in range(VOCAB_SIZE)}


def fake_text_model() -> TextModel:
    source = (
        "{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant'] %}"
        "{{ raise_exception('unknown role ' ~ m.role) }}{% endif %}{{ m.content }}{% endfor %}"
    )
    backend = FakeBackend()
    return TextModel(
        backend=backend,
        template=compile_template(source),
        special_tokens={},
        end_token_ids=frozenset({VOCAB_SIZE}),  # the fake replica never chooses it
        max_model_len=512,
        longest_token_bytes=1,
        token_bytes=token_bytes_of(backend),
    )
