"""Passes over buffers at fixed addresses, in few shapes, which a GPU can run without the host.

The work of a pass is one function without arguments. It reads the numbers that were copied into the
buffers and writes its logits into another buffer. It can therefore be recorded once for each shape
and replayed. Shape legend: N logits, V vocabulary.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Hashable

import torch
from torch import Tensor

from specdec_core.layers.attention.metadata import AttentionShape
from specdec_core.model import ForwardInput
from specdec_core.worker.cuda_graphs.buckets import (
    MAX_QUERIES,
    MAX_ROWS,
    Bucket,
    Shape,
    bucket_for,
    most_logits,
    rounded_blocks,
)
from specdec_core.worker.cuda_graphs.device_plan import StaticModel, device_plan
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


class CudaGraphRunner:
    """Passes of one model that need no Python except a copy of their numbers and a replay."""

    def __init__(self, model: StaticModel, shape: AttentionShape, recorder: Recorder) -> None:
        self._model = model
        self._attention_shape = shape
        self._recordings: GraphCache[Shape] = GraphCache(recorder)
        self._num_stood_in: Counter[Shape] = Counter()
        """Passes of each unrecorded shape that ran in a larger shape."""
        self._max_logits = most_logits(model.max_choices)
        self._buffers = PassBuffers(model.kv.shape.device, self._largest())
        self._logits_NV = torch.empty(
            self._max_logits,
            model.logits_width,
            dtype=model.kv.shape.dtype,
            device=model.kv.shape.device,
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
        return self._attention_shape.queries.low

    def bucket_of(self, batch: ForwardInput, num_ahead: int = 0) -> Bucket | None:
        """Return the shape in which a pass runs, or None if it fits no fixed shape. A pass with
        taps fits none, because recordings return no features."""
        if self._has_ended or batch.taps:
            return None
        size, is_read = self._model.kv.block_size, self._model.reads_blocks
        shape, most = self._attention_shape, self._max_logits
        return bucket_for(batch, size, shape, most, num_ahead, is_read)

    def shape_for(self, bucket: Bucket, work: Hashable = None) -> Shape:
        """Return the shape for a pass of `bucket` with `work`. If its own shape is not recorded,
        this is usually a recorded shape that is slightly larger."""
        own = Shape(bucket, work)
        if own in self._recordings:
            return own
        is_read = self._model.reads_blocks
        others = [
            shape
            for shape in self._recordings
            if shape.work == work and shape.bucket.may_stand_in(bucket, is_read)
        ]
        self._num_stood_in[own] += len(others) > 0
        if not others or self._num_stood_in[own] % _OWN_AFTER == 0:
            return own
        return min(others, key=lambda shape: shape.bucket.num_tokens)

    def run(self, batch: ForwardInput) -> Tensor | None:
        """Run one pass and return the wanted logits in the model's type, [N, V]. The caller owns
        them. Return None if the pass fits no fixed shape."""
        own = self.bucket_of(batch)
        if own is None:
            return None
        shape = self.shape_for(own)
        bucket = shape.bucket
        logits_NV = self._logits_NV[: bucket.num_logits]
        replay = self.recorded(shape, lambda: logits_NV.copy_(self.forward(bucket)))
        if replay is None:
            return None
        self.fill(batch, bucket)
        replay()
        return logits_NV[: sum(batch.num_logits)].clone()

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
                "failed to record passes %d times in a row (last failure: %s); passes "
                "now run without recordings. On a GPU they are slower, because the host "
                "launches each operation. If memory ran out, lower "
                "gpu_memory_utilization or kv_cache_tokens and restart",
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

    def fill(self, batch: ForwardInput, bucket: Bucket) -> None:
        """Copy the numbers of a pass to the buffers that its recording reads."""
        self._buffers.fill(pack(batch, self._model.kv, bucket))

    def numbers(self, bucket: Bucket) -> PassNumbers:
        return self._buffers.views(bucket)

    def forward(self, bucket: Bucket) -> Tensor:
        """Return the logits of a pass in the model's type, [N, V], from the numbers in the
        buffers."""
        model = self._model
        metadata = device_plan(self._buffers.views(bucket), bucket, model)
        return model.decoder.decode(metadata, model.kv.all_pools, model.attention, ()).logits

    def _largest(self) -> Bucket:
        size = self._model.kv.block_size
        num_blocks = -(-(self._model.max_model_len + MAX_QUERIES) // size)
        num_keys = rounded_blocks(num_blocks, self._model.reads_blocks) * size
        num_blocks = -(-self._attention_shape.key_len(num_keys) // size)
        return Bucket(MAX_ROWS, MAX_QUERIES, num_blocks, self._max_logits)
