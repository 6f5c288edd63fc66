"""Random models in the shapes of the paper's pairs, divided by a scale so that a CPU can run them.

At scale 1 they have the real sizes: what a pass costs does not depend on what the weights say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from benchmarks.paper.pair_spec import RANDOM
from specdec_core.errors import InvalidRequestError

_VECTOR = 64


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes that decide what a pass costs."""

    num_layers: int
    hidden: int
    ffn: int
    num_heads: int
    num_kv_heads: int
    head_dim: int = field(kw_only=True)

    def scaled(self, scale: int) -> Shape:
        """Width, depth and heads divided by `scale`; head_dim and the grouping of heads stay.

        Widths are whole vectors: kernels round differently in a rest that is none.
        """
        groups = self.num_heads // self.num_kv_heads
        num_kv_heads = max(self.num_kv_heads // scale, 1)
        return Shape(
            num_layers=max(self.num_layers // scale, 1),
            hidden=_whole(self.hidden // scale),
            ffn=_whole(self.ffn // scale),
            num_heads=num_kv_heads * groups,
            num_kv_heads=num_kv_heads,
            head_dim=self.head_dim,
        )


def _whole(width: int) -> int:
    return -(-width // _VECTOR) * _VECTOR


@dataclass(frozen=True, slots=True, kw_only=True)
class PairShape:
    target: Shape
    draft: Shape
    vocab_size: int


PAIR_SHAPES = {
    "vicuna": PairShape(
        target=Shape(32, 4096, 11008, 32, 32, head_dim=128),
        draft=Shape(2, 768, 3072, 12, 12, head_dim=64),
        vocab_size=32_000,
    ),
    "qwen3": PairShape(
        target=Shape(36, 4096, 12288, 32, 8, head_dim=128),
        draft=Shape(28, 1024, 3072, 16, 8, head_dim=128),
        vocab_size=151_936,
    ),
    # The draft is a Qwen2.5-0.5B with GLM's vocabulary.
    "glm4": PairShape(
        target=Shape(40, 4096, 13696, 32, 2, head_dim=128),
        draft=Shape(24, 896, 4864, 14, 2, head_dim=64),
        vocab_size=151_552,
    ),
    # Not of the paper: TinyLlama's 1.1B and a draft of 58M, sizes that a CPU decodes whole.
    "tinyllama": PairShape(
        target=Shape(22, 2048, 5632, 32, 4, head_dim=64),
        draft=Shape(8, 512, 1408, 8, 8, head_dim=64),
        vocab_size=32_000,
    ),
}


def pair_shape(target: str) -> PairShape:
    """Of `random-NAME`. Raises InvalidRequestError for a name that has no shape."""
    name = target.removeprefix(RANDOM)
    if name not in PAIR_SHAPES:
        raise InvalidRequestError(f"{target}: known shapes are {', '.join(PAIR_SHAPES)}")
    return PAIR_SHAPES[name]


def random_model(
    shape: Shape,
    vocab_size: int,
    *,
    seed: int,
    dtype: torch.dtype,
    device: torch.device,
    max_len: int,
) -> PreTrainedModel:
    """A Llama of this shape; its greedy answers are arbitrary but not constant."""
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {
        "num_hidden_layers": shape.num_layers,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
    }
    config = LlamaConfig(
        **sizes,
        vocab_size=vocab_size,
        max_position_embeddings=max_len,
        initializer_range=0.05,
        tie_word_embeddings=False,
    )
    with device:  # weights of real sizes take minutes on a host
        model: Any = LlamaForCausalLM(config)
    random_weights: PreTrainedModel = model.to(dtype=dtype).eval()
    return random_weights
