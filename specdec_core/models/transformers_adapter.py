"""Any full-attention causal LM of transformers as a CachedModel.

The only module that touches the internals of transformers: its attention hook and the keyword
arguments that a model hands through to it. The keys and values live in our blocks, so a model runs
without a transformers cache and without a transformers mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.masking_utils import sdpa_mask

from specdec_core.errors import InvalidRequestError, ModelNotSupportedError
from specdec_core.kv.paged import BLOCK_SIZE, KVShape, PagedKV
from specdec_core.models.cached_model import Feed
from specdec_core.models.numerics import FAST_ATTENTION, AttentionShape, ClassTable, Numerics
from specdec_core.models.padded_model import PaddedTransformersModel
from specdec_core.models.pass_plan import PassPlan, Piece, plan_pass, split_into_passes
from specdec_core.models.ragged_attention import AttentionPass, RaggedPass
from specdec_core.models.support import check_supported

ATTENTION_NAME = "specdec_ragged"
_UNSUPPORTED_ATTENTION_ARGUMENTS = ("softcap", "s_aux", "position_bias")


def _ragged_attention_forward(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    ragged_pass: AttentionPass | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """The attention of an adapted model; its pass travels as a keyword argument of `forward`.

    Called without one (by `generate()`, say) the model still works, as with "sdpa".
    """
    if ragged_pass is None:
        sdpa = AttentionInterface()["sdpa"]
        output: tuple[Tensor, Tensor | None] = sdpa(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return output
    for name in _UNSUPPORTED_ATTENTION_ARGUMENTS:
        if kwargs.get(name) is not None:
            raise ModelNotSupportedError(f"attention with {name} is not supported")
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    return ragged_pass.attend(int(module.layer_idx), query, key, value, scaling), None  # type: ignore[arg-type]


AttentionInterface.register(ATTENTION_NAME, _ragged_attention_forward)
AttentionMaskInterface.register(ATTENTION_NAME, sdpa_mask)


class TransformersModel:
    """A transformers model over paged KV slots; implements CachedModel.

    The forward is flat and ragged: the fed tokens of all rows on one axis, each with its own
    position, so that the linears see exactly those rows and there is no padding. Prefill, catch-up
    and verification are rows of one call. Not thread-safe; one caller.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        vocab_size: int,
        kv_cache_tokens: int,
        max_model_len: int | None = None,
        max_tokens_per_pass: int = 512,
    ) -> None:
        """Adapt `model`, which stays usable by others; `vocab_size` is the tokenizer's range.

        Raises ModelNotSupportedError when the model cannot run over KV slots.
        """
        self.class_table: ClassTable | None = None
        config = model.config
        self.max_model_len: int = max_model_len or config.max_position_embeddings
        check_supported(config, self.max_model_len)
        self.vocab_size = min(vocab_size, config.vocab_size)
        self._model: PreTrainedModel = model.eval()
        self.max_tokens_per_pass = max_tokens_per_pass
        self.num_query_groups = config.num_attention_heads // num_kv_heads(config)
        num_blocks = -(-kv_cache_tokens // BLOCK_SIZE)
        if num_blocks < 1:
            raise InvalidRequestError(f"kv_cache_tokens must be at least 1, got {kv_cache_tokens}")
        self._kv = PagedKV(kv_shape(config, model.dtype, model.device), num_blocks)
        # A mask of 4 dimensions counts as prepared: transformers then builds none of its own.
        self._prepared_mask = torch.empty(1, 1, 1, 1, device=model.device)
        self._model.set_attn_implementation(ATTENTION_NAME)
        self._probe()

    @property
    def module(self) -> PreTrainedModel:
        return self._model

    @property
    def numerics(self) -> Numerics:
        """What this model keeps: exact with a class table, else fast."""
        return Numerics.FAST if self.class_table is None else Numerics.EXACT

    @property
    def attention(self) -> AttentionShape:
        return FAST_ATTENTION if self.class_table is None else self.class_table.attention

    @property
    def tile_rows(self) -> int:
        return 0 if self.class_table is None else self.class_table.tile_rows

    @property
    def dtype(self) -> torch.dtype:
        return self._kv.shape.dtype

    @property
    def device(self) -> torch.device:
        return self._kv.shape.device

    @property
    def num_blocks(self) -> int:
        return self._kv.num_blocks

    @property
    def block_size(self) -> int:
        return self._kv.block_size

    @property
    def num_free_blocks(self) -> int:
        return self._kv.num_free_blocks

    @property
    def cache_shape(self) -> KVShape:
        return self._kv.shape

    def padded(self) -> PaddedTransformersModel:
        """The same weights over left-padded batches, which bring their own memory."""
        return PaddedTransformersModel(self)

    def allocate(self) -> int:
        return self._kv.allocate()

    def free(self, slot: int) -> None:
        self._kv.free(slot)

    def cached_len(self, slot: int) -> int:
        return self._kv.cached_len(slot)

    def rollback(self, slot: int, length: int) -> None:
        self._kv.rollback(slot, length)

    @torch.inference_mode()
    def score(self, feeds: Sequence[Feed]) -> Tensor:
        """See CachedModel. Logits are float32; feeds beyond `max_tokens_per_pass` take several
        passes. A pass that raises leaves every slot as it was."""
        starts = self._make_room(feeds)
        try:
            passes = split_into_passes(
                feeds, starts, self.max_tokens_per_pass, self.attention.queries.high
            )
            logits = [self._forward(pieces) for pieces in passes if pieces]
        except BaseException:
            for feed, start in zip(feeds, starts, strict=True):
                self._kv.rollback(feed.slot, start)
            raise
        if not logits:
            return torch.empty(0, self._model.config.vocab_size, device=self._model.device)
        return logits[0] if len(logits) == 1 else torch.cat(logits)

    def _make_room(self, feeds: Sequence[Feed]) -> list[int]:
        """Extend every slot by its feed; returns where each feed starts."""
        starts = [self._kv.cached_len(feed.slot) for feed in feeds]
        counts = {feed.slot: len(feed.tokens) for feed in feeds}
        assert len(counts) == len(feeds), "a slot is fed once per call"
        for feed, start in zip(feeds, starts, strict=True):
            assert 0 <= feed.num_logits <= len(feed.tokens)
            assert start + len(feed.tokens) <= self.max_model_len
        self._kv.extend(counts)
        return starts

    def _forward(self, pieces: Sequence[Piece]) -> Tensor:
        """One pass; logits of the wanted tokens, [N, V]."""
        plan = plan_pass(pieces, self._kv, self.num_query_groups, self.attention)
        return self.run_pass(plan, RaggedPass(plan, self._kv))

    def run_pass(self, plan: PassPlan, ragged_pass: AttentionPass) -> Tensor:
        """One forward pass with the attention of `ragged_pass`; the wanted logits, [N, V]."""
        output = self._model(
            input_ids=plan.input_ids,
            position_ids=plan.position_ids,
            attention_mask=self._prepared_mask,
            use_cache=False,
            logits_to_keep=plan.logits_index,
            ragged_pass=ragged_pass,
        )
        logits: Tensor = output.logits[0].float()
        return logits

    @torch.inference_mode()
    def _probe(self) -> None:
        """Let one token prove that every layer's keys and values go through our cache."""
        slot = self._kv.allocate()
        self._kv.extend({slot: 1})
        plan = plan_pass([Piece(slot, 0, (0,), 1)], self._kv, self.num_query_groups, self.attention)
        ragged_pass = RaggedPass(plan, self._kv)
        try:
            self.run_pass(plan, ragged_pass)
        finally:
            self._kv.free(slot)
        if len(ragged_pass.layers_seen) != self._kv.shape.num_layers:
            raise ModelNotSupportedError(
                f"{type(self._model).__name__}: {len(ragged_pass.layers_seen)} of "
                f"{self._kv.shape.num_layers} layers use the attention interface of transformers"
            )


def kv_shape(config: PreTrainedConfig, dtype: torch.dtype, device: torch.device) -> KVShape:
    head_dim = getattr(config, "head_dim", None)
    return KVShape(
        num_layers=config.num_hidden_layers,
        num_kv_heads=num_kv_heads(config),
        head_dim=head_dim or config.hidden_size // config.num_attention_heads,
        dtype=dtype,
        device=device,
    )


def num_kv_heads(config: PreTrainedConfig) -> int:
    """Models without grouped queries may not say."""
    heads: int = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return heads
