"""A causal LM as a CachedModel: passes over paged keys and values.

The forward itself is a Decoder: our own for models of Llama's shape, otherwise that of
transformers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from specdec_core.batch_invariance.size_classes import ClassTable
from specdec_core.config import DEFAULT_MAX_CHOICES, Numerics
from specdec_core.errors import InvalidRequestError
from specdec_core.kv_cache.paged import RUN_LENGTH, KVShape, PagedKV, load_touch
from specdec_core.kv_cache.spec import FullAttentionSpec
from specdec_core.layers.attention.backend import AttentionBackend
from specdec_core.layers.attention.metadata import (
    FAST_ATTENTION,
    split_into_passes,
)
from specdec_core.layers.attention.paged import BlockAttention, CpuAttention
from specdec_core.layers.attention.sdpa import SdpaAttention
from specdec_core.model import DraftChoice, ForwardInput, ForwardOutput
from specdec_core.models.base import Decoder
from specdec_core.models.generic import HookedDecoder
from specdec_core.models.llama import LlamaModel
from specdec_core.models.registry import check_supported
from specdec_core.step_times import StepTime
from specdec_core.stopwatch import wait_for
from specdec_core.worker.cache_probe import check_cache_use
from specdec_core.worker.cuda_graphs.device_plan import StaticModel
from specdec_core.worker.cuda_graphs.draft_loop import DraftLoop
from specdec_core.worker.cuda_graphs.graph_runner import CudaGraphRunner
from specdec_core.worker.cuda_graphs.recorder import Recorder


class _Fixed(NamedTuple):
    """Parts that run in fixed shapes."""

    passes: CudaGraphRunner
    loop: DraftLoop


class ModelRunner:
    """A transformers model over paged KV slots; implements CachedModel.

    The forward is flat and ragged. The fed tokens of all rows are on one axis, each with its own
    position, so the linears see exactly those rows and no padding. Prefill, catch-up and
    verification are rows of one call. Not thread-safe; one caller.
    """

    def __init__(
        self,
        model: PreTrainedModel | LlamaModel,
        *,
        vocab_size: int,
        kv_cache_tokens: int,
        max_model_len: int | None = None,
        max_tokens_per_pass: int = 512,
        enable_prefix_caching: bool = True,
        recorder: Recorder | None = None,
        block_attention: BlockAttention | None = None,
        max_choices: int = DEFAULT_MAX_CHOICES,
    ) -> None:
        """Adapt `model`, which other code may still use. `vocab_size` is the tokenizer's range.

        With a recorder, passes of a few tokens per row run in fixed shapes, and a draft's round
        runs as a whole. The fixed shapes have memory for the logits of `max_choices` tokens. With
        `block_attention` no keys are gathered. Raises ModelNotSupportedError when the model cannot
        run over KV slots.
        """
        self._class_table: ClassTable | None = None
        self.attention_shape = FAST_ATTENTION
        config = model.config
        self.max_model_len: int = max_model_len or config.max_position_embeddings
        check_supported(config, self.max_model_len)
        self.vocab_size = min(vocab_size, config.vocab_size)
        self._model = model
        self.decoder: Decoder = model if isinstance(model, LlamaModel) else HookedDecoder(model)
        self.kernels = model.kernels if isinstance(model, LlamaModel) else None
        self.max_tokens_per_pass = max_tokens_per_pass
        self.num_query_groups = config.num_attention_heads // num_kv_heads(config)
        shape = kv_shape(config, model.dtype, model.device)
        num_blocks = shape.spec().blocks_for(kv_cache_tokens)
        if num_blocks < 1:
            raise InvalidRequestError(f"kv_cache_tokens must be at least 1, got {kv_cache_tokens}")
        self._kv = PagedKV(
            shape,
            num_blocks,
            run_length=RUN_LENGTH if self.kernels else 1,
            has_scratch_block=recorder is not None,
            clears_blocks=self.kernels is None,  # they read no place that no token has
            touch=load_touch() if self.kernels else None,
        )
        # Slots are the cache's own. These are called for every row, so nothing is put between.
        self.allocate, self.free = self._kv.allocate, self._kv.free
        self.cached_len, self.rollback = self._kv.cached_len, self._kv.rollback
        self._recorder = recorder
        self._max_choices = max_choices
        self.block_attention = block_attention
        self._attention = self.attention_backend()
        self._fixed: _Fixed | None = self._make_fixed()
        self.prefix_cache = self._kv if enable_prefix_caching else None
        self.step_times: tuple[StepTime, ...] = ()
        with torch.inference_mode(), self.eager():  # recorded passes compute the same
            check_cache_use(type(model).__name__, self._kv, self._run)

    @property
    def module(self) -> PreTrainedModel | LlamaModel:
        return self._model

    @property
    def class_table(self) -> ClassTable | None:
        """Sizes that exact numerics uses; None in fast numerics."""
        return self._class_table

    @class_table.setter
    def class_table(self, table: ClassTable | None) -> None:
        """Set the table and drop all recordings. They ran through other linears and in other
        shapes."""
        self._class_table = table
        self.attention_shape = FAST_ATTENTION if table is None else table.attention
        self._attention = self.attention_backend()
        if self._fixed is not None:
            self._fixed.passes.forget()
            self._fixed = None
        self._fixed = self._make_fixed()

    @property
    def numerics(self) -> Numerics:
        """Numerics of this model: exact with a class table, otherwise fast."""
        return Numerics.FAST if self.class_table is None else Numerics.EXACT

    @property
    def tile_rows(self) -> int:
        return 0 if self.class_table is None else self.class_table.tile_rows

    @property
    def recording_s(self) -> float:
        """See CachedModel."""
        return 0.0 if self._fixed is None else self._fixed.passes.recording_s

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
    def kv_cache_spec(self) -> FullAttentionSpec:
        return self._kv.spec

    @property
    def num_free_blocks(self) -> int:
        return self._kv.num_free_blocks

    @property
    def cache_shape(self) -> KVShape:
        return self._kv.shape

    def wait(self) -> None:
        wait_for(self.device)

    @torch.inference_mode()
    def forward(self, batch: ForwardInput) -> ForwardOutput:
        """See CachedModel. More than `max_tokens_per_pass` tokens take several passes. A pass that
        raises leaves every slot as it was."""
        taps, num_layers = batch.taps, self._kv.shape.num_layers
        assert not taps or 0 <= min(taps) <= max(taps) < num_layers
        fed, starts = batch.token_counts, list(map(self.cached_len, batch.slots))
        for start, count, num_logits in zip(starts, fed, batch.num_logits, strict=True):
            assert 0 <= num_logits <= count <= self.max_model_len - start
        counts = dict(zip(batch.slots, fed, strict=True))
        assert len(counts) == len(starts), "a slot is fed once per call"
        self._kv.extend(counts)
        batch = ForwardInput(*batch[:-1], starts)  # `_replace` takes 1 us more
        max_tokens, max_queries = self.max_tokens_per_pass, self.attention_shape.queries.high
        try:
            is_whole = len(batch.token_ids) <= max_tokens and max(fed, default=0) <= max_queries
            if is_whole and min(fed, default=0) > 0:
                return self._run(batch)  # nearly always
            return self._run_in_passes(batch, max_tokens, max_queries)
        except BaseException:
            self._roll_back(batch)
            raise

    def _run_in_passes(
        self, batch: ForwardInput, max_tokens: int, max_queries: int
    ) -> ForwardOutput:
        passes = split_into_passes(batch, max_tokens, max_queries)
        return self._joined([self._run(one_pass) for one_pass in passes], len(batch.taps))

    def _roll_back(self, batch: ForwardInput) -> None:
        """Roll every slot back to the start of its row."""
        for slot, start in zip(batch.slots, batch.starts, strict=True):
            self.rollback(slot, start)

    @property
    def drafts_in_one_go(self) -> bool:
        return self._fixed is not None

    def draft(
        self, batch: ForwardInput, choices: Sequence[DraftChoice], min_confidence: float
    ) -> list[tuple[int, ...]] | None:
        """See DraftsInOneGo."""
        if self._fixed is None:
            return None
        return self._fixed.loop.propose(batch, choices, min_confidence)

    @contextmanager
    def eager(self) -> Iterator[None]:
        """Context manager without recording and replay, so that hooks of modules see every pass."""
        fixed, self._fixed = self._fixed, None
        try:
            yield
        finally:
            self._fixed = fixed

    def _make_fixed(self) -> _Fixed | None:
        if self._recorder is None:
            return None
        assert self.kernels is None, "the kernels of a CPU take rows of any lengths"
        model = StaticModel(
            decoder=self.decoder,
            kv=self._kv,
            num_query_groups=self.num_query_groups,
            logits_width=self._model.config.vocab_size,
            max_model_len=self.max_model_len,
            max_choices=self._max_choices,
            attention=self._attention,
            reads_blocks=self.block_attention is not None,
        )
        passes = CudaGraphRunner(model, self.attention_shape, self._recorder)
        return _Fixed(passes, DraftLoop(passes, self._kv, self.vocab_size))

    def _run(self, batch: ForwardInput) -> ForwardOutput:
        """Run one pass, in a fixed shape if it fits one. `batch` has the starts of its rows."""
        if self._fixed is not None:
            logits = self._fixed.passes.run(batch)
            if logits is not None:
                return ForwardOutput(logits)
        metadata = self._attention.plan(batch, self._kv)
        return self.decoder.decode(metadata, self._kv.all_pools, self._attention, batch.taps)

    def attention_backend(
        self, gather_watch: AbstractContextManager[object] | None = None
    ) -> AttentionBackend:
        """Return the attention of this model. If it gathers keys, it enters `gather_watch` around
        each gathering."""
        if self.kernels is not None:
            return CpuAttention(self.kernels)
        if self.block_attention is not None:
            return self.block_attention
        return SdpaAttention(self.num_query_groups, self.attention_shape, gather_watch)

    def _joined(self, outputs: Sequence[ForwardOutput], num_taps: int) -> ForwardOutput:
        """Return the outputs of several passes, or of none, as one."""
        config, device = self._model.config, self.device
        if not outputs:
            nothing = torch.empty(0, config.hidden_size, device=device)
            return ForwardOutput(
                torch.empty(0, config.vocab_size, device=device), (nothing,) * num_taps
            )
        features = zip(*(output.features for output in outputs), strict=True)
        return ForwardOutput(
            torch.cat([output.logits for output in outputs]), tuple(map(torch.cat, features))
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
    """Return the number of KV heads. Models without grouped queries may not state it."""
    heads: int = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return heads
