"""The check at load notices a pass that does not keep its keys and values in our cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from specdec_core.errors import ModelNotSupportedError
from specdec_core.kernels.ops import NativeKernels, load_kernels
from specdec_core.kv_cache.paged import KVShape, PagedKV
from specdec_core.layers.attention.metadata import AttentionMetadata, Piece
from specdec_core.models.llama import LlamaModel
from specdec_core.models.llama_cpu import LlamaCpuModel, Pools
from specdec_core.worker.cache_probe import check_cache_use
from specdec_core.worker.model_runner import ModelRunner
from tests.models.test_native_kernels import WIDE
from tests.tiny_models import VOCAB, tiny_model

NUM_LAYERS = 3
Run = Callable[[LlamaCpuModel, AttentionMetadata, Pools], Tensor]


class Pass:
    """A pass over a cache; `written` says which planes it writes, `read` which layers it reads."""

    def __init__(self, written: Sequence[tuple[bool, bool]], read: Sequence[int]) -> None:
        shape = KVShape(
            num_layers=NUM_LAYERS,
            num_kv_heads=2,
            head_dim=8,
            dtype=torch.float32,
            device=torch.device("cpu"),
        )
        self.kv = PagedKV(shape, num_blocks=4)
        self._written = written
        self._read = read

    def forward(self, pieces: Sequence[Piece]) -> Tensor:
        (piece,) = pieces
        first = self.kv.block_table(piece.slot)[0] * self.kv.block_size
        for pools, kinds in zip(self.kv.all_pools, self._written, strict=True):
            for pool, is_written in zip(pools, kinds, strict=True):
                if is_written:
                    pool[first + piece.start] = 1.0
        seen = [self.kv.pools(layer)[1][first : first + piece.end] for layer in self._read]
        return torch.ones(1, 5) * sum(values.sum() for values in seen)

    def check(self) -> None:
        try:
            check_cache_use("Llama", self.kv, self.forward)
        finally:
            assert self.kv.num_free_blocks == 4
            slot = self.kv.allocate()
            self.kv.extend({slot: 64})
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
    with pytest.raises(ModelNotSupportedError, match=f"Llama: {num_written} of 3 layers write"):
        Pass(written, range(NUM_LAYERS)).check()


def test_a_pass_that_does_not_read_is_refused() -> None:
    with pytest.raises(ModelNotSupportedError, match="Llama: no layer reads"):
        Pass(ALL, ()).check()


_RUN = LlamaCpuModel.run


def _writes_nothing(stack: LlamaCpuModel, plan: AttentionMetadata, pools: Pools) -> Tensor:
    return torch.zeros(plan.logits_index.shape[0], VOCAB, dtype=torch.bfloat16)


def _uses_another_cache(stack: LlamaCpuModel, plan: AttentionMetadata, pools: Pools) -> Tensor:
    return _RUN(stack, plan, [(keys.clone(), values.clone()) for keys, values in pools])


def _reads_no_cache(stack: LlamaCpuModel, plan: AttentionMetadata, pools: Pools) -> Tensor:
    own = [(torch.zeros_like(keys), torch.zeros_like(values)) for keys, values in pools]
    logits = _RUN(stack, plan, own)
    for theirs, ours in zip(pools, own, strict=True):
        for target, source in zip(theirs, ours, strict=True):
            target[plan.write_index] = source[plan.write_index]
    return logits


def _leaves_a_layer_out(stack: LlamaCpuModel, plan: AttentionMetadata, pools: Pools) -> Tensor:
    stack._model.num_layers = len(pools) - 1
    return _RUN(stack, plan, pools)


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
        (_writes_nothing, "0 of 2 layers write"),
        (_uses_another_cache, "0 of 2 layers write"),
        (_leaves_a_layer_out, "1 of 2 layers write"),
        (_reads_no_cache, "no layer reads"),
    ],
)
def test_a_wrong_path_of_the_kernels_is_refused(
    kernels: NativeKernels, monkeypatch: pytest.MonkeyPatch, run: Run, problem: str
) -> None:
    native_model(kernels)
    monkeypatch.setattr(LlamaCpuModel, "run", run)
    with pytest.raises(ModelNotSupportedError, match=f"LlamaModel: {problem}"):
        native_model(kernels)
