"""Passes over buffers at fixed addresses, in few shapes, which a GPU can run without the host.

The work of a pass is one function without arguments. It reads the numbers that were copied into the
buffers and writes its logits into another buffer. It can therefore be recorded once for each shape
and replayed. Shape legend: N logits, V vocabulary.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_core.kv_cache.paged import PagedKV
from specdec_core.layers.attention.metadata import AttentionMetadata, Piece
from specdec_core.layers.attention.paged import BlockAttention, BlockPass, BlockRows
from specdec_core.layers.attention.sdpa import AttentionPass, RaggedPass
from specdec_core.layers.attention.shape import AttentionShape
from specdec_core.models.base import Decoder
from specdec_core.worker.cuda_graphs.buckets import (
    MAX_QUERIES,
    MAX_ROWS,
    Bucket,
    Shape,
    bucket_for,
    most_logits,
    rounded_blocks,
)
from specdec_core.worker.cuda_graphs.device_plan import Layout, device_plan
from specdec_core.worker.cuda_graphs.recorder import (
    MAX_FAILURES,
    GraphCache,
    Recorder,
    RecordingEndedError,
    Work,
)
from specdec_core.worker.cuda_graphs.static_input import PassBuffers, PassNumbers, pack

_logger = logging.getLogger(__name__)

_OWN_AFTER = 64
"""Passes of a shape that run in a larger shape before this shape is recorded too. Recording takes
as long as some dozens of passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticModel:
    """Parts of a model that passes of fixed shape need."""

    decoder: Decoder
    kv: PagedKV
    num_query_groups: int
    logits_width: int
    """V, including padded IDs."""
    max_model_len: int
    max_choices: int
    """Maximum tokens that one call samples. Passes that want more logits are not recorded."""
    block_attention: BlockAttention | None
    """Attention over a block table. None: the blocks are gathered for PyTorch's own attention."""


class CudaGraphRunner:
    """Passes of one model that need no Python except a copy of their numbers and a replay."""

    def __init__(self, model: StaticModel, attention: AttentionShape, recorder: Recorder) -> None:
        self._model = model
        self._attention = attention
        self._recordings: GraphCache[Shape] = GraphCache(recorder)
        self._num_stood_in: Counter[Shape] = Counter()
        """Passes of each unrecorded shape that ran in a larger shape."""
        kv = model.kv
        assert kv.scratch_block is not None, "padding must read and write somewhere"
        self._layout = Layout(
            kv=kv.shape,
            block_size=kv.block_size,
            scratch_block=kv.scratch_block,
            num_query_groups=model.num_query_groups,
            reads_blocks=model.block_attention is not None,
        )
        self._max_logits = most_logits(model.max_choices)
        self._buffers = PassBuffers(kv.shape.device, self._largest())
        self._logits_NV = torch.empty(
            self._max_logits, model.logits_width, dtype=kv.shape.dtype, device=kv.shape.device
        )
        """Buffer for the logits of all shapes. It is allocated with the model, because its memory
        is planned."""
        self._has_ended = False

    @property
    def num_recorded(self) -> int:
        return len(self._recordings)

    @property
    def recording_s(self) -> float:
        """Seconds spent on recordings so far."""
        return self._recordings.seconds

    @property
    def min_queries(self) -> int:
        """Tokens per row in the smallest pass."""
        return self._attention.queries.low

    def bucket_of(self, pieces: Sequence[Piece], num_ahead: int = 0) -> Bucket | None:
        """Return the shape in which these pieces run, or None if they fit no fixed shape."""
        if self._has_ended:
            return None
        size, most = self._layout.block_size, self._max_logits
        is_read = self._layout.reads_blocks
        return bucket_for(pieces, size, self._attention, most, num_ahead, is_read)

    def shape_for(self, bucket: Bucket, work: Hashable = None) -> Shape:
        """Return the shape for a pass of `bucket` with `work`. If its own shape is not recorded,
        this is usually a recorded shape that is slightly larger."""
        own = Shape(bucket, work)
        if own in self._recordings:
            return own
        is_read = self._layout.reads_blocks
        others = [
            shape
            for shape in self._recordings
            if shape.work == work and shape.bucket.may_stand_in(bucket, is_read)
        ]
        self._num_stood_in[own] += len(others) > 0
        if not others or self._num_stood_in[own] % _OWN_AFTER == 0:
            return own
        return min(others, key=lambda shape: shape.bucket.num_tokens)

    def run(self, pieces: Sequence[Piece]) -> Tensor | None:
        """Run one pass and return the wanted logits in the model's type, [N, V]. The caller owns
        them. Return None if the pieces fit no fixed shape."""
        own = self.bucket_of(pieces)
        if own is None:
            return None
        shape = self.shape_for(own)
        bucket = shape.bucket
        logits_NV = self._logits_NV[: bucket.num_logits]
        replay = self.recorded(shape, lambda: logits_NV.copy_(self.forward(bucket)))
        if replay is None:
            return None
        self.fill(pieces, bucket)
        replay()
        num_wanted = sum(piece.num_logits for piece in pieces)
        return logits_NV[:num_wanted].clone()

    def recorded(
        self,
        shape: Shape,
        work: Work,
        numbers: Tensor | None = None,
        kept: Collection[Shape] = (),
    ) -> Work | None:
        """Return the recording of `work` for `shape`; record it first if there is none.

        Recording overwrites all numbers, `numbers` included. All are 0 whenever the work is tried,
        so that it only writes to the scratch block.

        Return None if memory is short and only `kept` recordings are left, or if recording fails.
        After some failures in a row nothing is recorded any more.
        """

        def clear() -> None:
            self._buffers.clear()
            if numbers is not None:
                numbers.zero_()

        try:
            return self._recordings.get(shape, work, clear, kept)
        except RecordingEndedError as error:
            _logger.warning(
                "passes cannot be recorded (%d failures in a row, the last: %s); going on without: "
                "on a GPU they take the host's time for each operation. If memory ran out, lower "
                "gpu_memory_utilization or kv_cache_tokens and start again",
                MAX_FAILURES,
                error,
            )
            self._has_ended = True
            return None

    def forget(self) -> None:
        """Release the memory of all recordings, which are not used any more. Steps of drafts and
        their model refer to each other, so nothing is released automatically."""
        self._recordings.clear()
        self._num_stood_in.clear()

    def fill(self, pieces: Sequence[Piece], bucket: Bucket) -> None:
        """Copy the numbers of a pass to the buffers that its recording reads."""
        kv = self._model.kv
        self._buffers.fill(pack(pieces, kv, bucket, self._layout.scratch_block))

    def numbers(self, bucket: Bucket) -> PassNumbers:
        return self._buffers.views(bucket)

    def forward(self, bucket: Bucket) -> Tensor:
        """Return the logits of a pass in the model's type, [N, V], from the numbers in the
        buffers."""
        numbers = self._buffers.views(bucket)
        plan = device_plan(numbers, bucket, self._layout)
        return self._model.decoder.decode(plan, self._attention_pass(plan, numbers, bucket))

    def _attention_pass(
        self, plan: AttentionMetadata, numbers: PassNumbers, bucket: Bucket
    ) -> AttentionPass:
        attention = self._model.block_attention
        if attention is None:
            return RaggedPass(plan, self._model.kv)
        rows = _rectangle(numbers, bucket, self._model.kv)
        return BlockPass(plan, rows, self._model.kv, attention)

    def _largest(self) -> Bucket:
        size = self._layout.block_size
        num_blocks = -(-(self._model.max_model_len + MAX_QUERIES) // size)
        num_keys = rounded_blocks(num_blocks, self._layout.reads_blocks) * size
        num_blocks = -(-self._attention.key_len(num_keys) // size)
        return Bucket(MAX_ROWS, MAX_QUERIES, num_blocks, self._max_logits)


def _rectangle(numbers: PassNumbers, bucket: Bucket, kv: PagedKV) -> BlockRows:
    """Return block rows with an equal number of queries. Queries of the padding see keys after the
    row's end."""
    ends = torch.arange(bucket.rows + 1, dtype=torch.int32, device=kv.shape.device)
    return BlockRows(
        query_ends=ends * bucket.queries,
        key_counts=numbers.starts + bucket.queries,
        blocks=numbers.blocks,
        max_queries=bucket.queries,
        max_keys=bucket.blocks * kv.block_size,
    )
