"""The check at load notices a pass that does not keep its keys and values in our cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from specdec_core.errors import ModelNotSupportedError
from specdec_core.kernels.ops import NativeKernels, load_kernels
from specdec_core.kv_cache.paged import KVShape, PagedKV
from specdec_core.layers.attention.backend import Pools
from specdec_core.layers.attention.metadata import AttentionMetadata
from specdec_core.model import ForwardInput, ForwardOutput
from specdec_core.models.llama import LlamaCpuModel, LlamaModel
from specdec_core.worker.cache_probe import check_cache_use
from specdec_core.worker.model_runner import ModelRunner
from tests.models.test_native_kernels import WIDE
from tests.tiny_models import VOCAB, tiny_model

NUM_LAYERS = 3
Run = Callable[[LlamaCpuModel, AttentionMetadata, Pools], Tensor]


class Pass:
    """A pass over a cache; `written` says which planes it writes, `read` which layers it reads."""

    def __init__(
        self, written: Sequence[tuple[bool, bool]], read: Sequence[int], num_blocks: int = 4
    ) -> None:
        shape = KVShape(
            num_layers=NUM_LAYERS,
            num_kv_heads=2,
            head_dim=8,
            dtype=torch.float32,
            device=torch.device("cpu"),
        )
        self.kv = PagedKV(shape, num_blocks)
        self._written = written
        self._read = read

    def forward(self, batch: ForwardInput) -> ForwardOutput:
        return ForwardOutput(torch.stack([*map(self._row, batch.slots, batch.starts)]))

    def _row(self, slot: int, start: int) -> Tensor:
        first = self.kv.block_table(slot)[0] * self.kv.block_size
        for pools, kinds in zip(self.kv.all_pools, self._written, strict=True):
            for pool, is_written in zip(pools, kinds, strict=True):
                if is_written:
                    pool[first + start] = 1.0
        seen = [self.kv.pools(layer)[1][first : first + start + 1] for layer in self._read]
        return torch.ones(5) * sum(values.sum() for values in seen)

    def check(self) -> None:
        try:
            check_cache_use("Llama", self.kv, self.forward)
        finally:
            assert self.kv.num_free_blocks == self.kv.num_blocks
            slot = self.kv.allocate()
            self.kv.extend({slot: 16 * self.kv.num_blocks})
            assert not any(pool.isnan().any() for pools in self.kv.all_pools for pool in pools)


ALL = [(True, True)] * NUM_LAYERS


def test_a_pass_over_the_cache_is_taken() -> None:
    Pass(ALL, range(NUM_LAYERS)).check()


@pytest.mark.parametrize(
    ("written", "num_written"),
    [
        ([(False, False)] * NUM_LAYERS, 0),
        ([(True, True), (False, False), (True, True)], 2),
        ([(True, True), (True, True), (True, False)], 2),
        ([(False, True), (True, True), (True, True)], 2),
        ([(True, False)] * NUM_LAYERS, 0),
    ],
)
def test_layers_that_do_not_write_are_counted(
    written: list[tuple[bool, bool]], num_written: int
) -> None:
    with pytest.raises(
        ModelNotSupportedError, match=f"Llama: only {num_written} of 3 layers write"
    ):
        Pass(written, range(NUM_LAYERS)).check()


@pytest.mark.parametrize("num_blocks", [1, 2, 4])
@pytest.mark.parametrize("read", [(), (1,), (0, 2)])
def test_layers_that_do_not_read_are_counted(read: tuple[int, ...], num_blocks: int) -> None:
    with pytest.raises(ModelNotSupportedError, match=f"Llama: only {len(read)} of 3 layers read"):
        Pass(ALL, read, num_blocks).check()


_RUN = LlamaCpuModel.run


def _writes_nothing(stack: LlamaCpuModel, metadata: AttentionMetadata, pools: Pools) -> Tensor:
    return torch.zeros(metadata.logits_index.shape[0], VOCAB, dtype=torch.bfloat16)


def _uses_another_cache(stack: LlamaCpuModel, metadata: AttentionMetadata, pools: Pools) -> Tensor:
    return _RUN(stack, metadata, [(keys.clone(), values.clone()) for keys, values in pools])


def _reads_elsewhere(layers: Sequence[int]) -> Run:
    """Some layers read an empty cache; what they write is found in the cache afterwards."""

    def run(stack: LlamaCpuModel, metadata: AttentionMetadata, pools: Pools) -> Tensor:
        used = list(pools)
        for layer in layers:
            used[layer] = torch.zeros_like(pools[layer][0]), torch.zeros_like(pools[layer][1])
        logits = _RUN(stack, metadata, used)
        for theirs, ours in zip(pools, used, strict=True):
            for target, source in zip(theirs, ours, strict=True):
                target[metadata.write_index] = source[metadata.write_index]
        return logits

    return run


def _leaves_a_layer_out(stack: LlamaCpuModel, metadata: AttentionMetadata, pools: Pools) -> Tensor:
    stack._model.num_layers = len(pools) - 1
    return _RUN(stack, metadata, pools)


@pytest.fixture
def kernels() -> NativeKernels:
    own = load_kernels()
    if own is None:
        pytest.skip("no C compiler")
    return own


def native_model(kernels: NativeKernels) -> ModelRunner:
    decoder = LlamaModel(tiny_model("llama", **WIDE).bfloat16(), kernels)
    decoder.use_native_linears()
    return ModelRunner(decoder, vocab_size=VOCAB, kv_cache_tokens=64)


@pytest.mark.parametrize(
    ("run", "problem"),
    [
        (_writes_nothing, "only 0 of 2 layers write"),
        (_uses_another_cache, "only 0 of 2 layers write"),
        (_leaves_a_layer_out, "only 1 of 2 layers write"),
        (_reads_elsewhere([0, 1]), "only 0 of 2 layers read"),
        (_reads_elsewhere([0]), "only 1 of 2 layers read"),
        (_reads_elsewhere([1]), "only 1 of 2 layers read"),
    ],
)
def test_a_wrong_path_of_the_kernels_is_refused(
    kernels: NativeKernels, monkeypatch: pytest.MonkeyPatch, run: Run, problem: str
) -> None:
    native_model(kernels)
    monkeypatch.setattr(LlamaCpuModel, "run", run)
    with pytest.raises(ModelNotSupportedError, match=f"LlamaModel: {problem}"):
        native_model(kernels)
