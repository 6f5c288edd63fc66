"""What two replicas must share: the attention over blocks, and the compiler that made it."""

from __future__ import annotations

from specdec_core.models.fingerprint import numerics_fingerprint
from specdec_core.models.static_shapes.block_attention import BlockAttention, VarlenAttention
from specdec_core.models.transformers_adapter import TransformersModel
from tests.models.static_shapes.by_hand import varlen_by_hand
from tests.tiny_models import VOCAB, tiny_model


class _Compiled(VarlenAttention):
    def __init__(self, version: str) -> None:
        super().__init__(varlen_by_hand)
        self.compiler_version = version


def test_every_attention_has_its_fingerprint() -> None:
    kinds: list[BlockAttention | None] = [
        None,
        VarlenAttention(varlen_by_hand),
        _Compiled("3.6"),
        _Compiled("3.9"),
    ]
    model = TransformersModel(tiny_model("llama"), vocab_size=VOCAB, kv_cache_tokens=256)
    found = []
    for model.block_attention in kinds:
        found.append(numerics_fingerprint(model, "digest"))
    assert len(set(found)) == len(kinds)
    model.block_attention = _Compiled("3.9")
    assert numerics_fingerprint(model, "digest") == found[-1]
