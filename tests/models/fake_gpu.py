"""A GPU without one: its tensors have shapes and no numbers, and whoever waits for it is seen.

What lies on the host is computed in earnest. Tensors that say they are on a GPU are FakeTensors:
an operation over tensors of both raises, as on a GPU; a number that the host asks for is 0 and
counted as a wait, and so is every copy from memory that is not pinned. Two tensors are equal where
the host asks. Events have passed, but where `Event.has_passed` is false; then whoever waits for one
lets all pass.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode

from specdec_core import stopwatch
from specdec_core.kernels.ops import BlockRows
from specdec_core.layers.attention import sdpa as ragged_attention
from specdec_core.layers.attention.paged import BlockAttention
from specdec_core.worker.model_runner import ModelRunner
from tests.models.cuda_graphs.recorders import flat
from tests.tiny_models import VOCAB, tiny_decoder

GPU = torch.device("cuda:0")
_COPIES = frozenset({"_to_copy", "to", "copy_"})
_ANSWERS = {"_local_scalar_dense": 0, "equal": True}
"""What the host learns of numbers that are not there."""
_PINNING = frozenset({"pin_memory", "_pin_memory"})
_INDEXING = frozenset({"index", "index_put", "index_put_"})
_GUARDS = "_ZN3c104impl26device_guard_impl_registryE"
"""c10::impl::device_guard_impl_registry, a guard for each type of device."""
_CUDA, _META = 1, 14


@contextmanager
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The operations that made the host wait, as they come."""
    waits: list[str] = []

    def tolist(tensor: FakeTensor) -> Any:
        waits.append("tolist")
        return _zeros(tensor.shape)

    monkeypatch.setattr(FakeTensor, "tolist", tolist)
    # PyTorch asks a GPU which of its own it may take.
    monkeypatch.setattr(ragged_attention, "scaled_dot_product_attention", _attention)
    monkeypatch.setattr(stopwatch, "_event", lambda: Event(waits))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    with _guarded(), FakeTensorMode(allow_non_fake_inputs=True), _Gpu(waits):
        yield waits


def on_gpu(waits: list[str], decoder: str = "fused qwen3", **options: Any) -> ModelRunner:
    """A tiny model there. What waited while it was loaded does not count."""
    weights = tiny_decoder(decoder).to(GPU)
    model = ModelRunner(weights, vocab_size=VOCAB, kv_cache_tokens=2048, **options)
    waits.clear()
    return model


class _OverBlocks(BlockAttention):
    """Attention's shapes, and that all it gets is on one device."""

    def __call__(
        self, query_THD: Tensor, keys: Tensor, values: Tensor, rows: BlockRows, scaling: float
    ) -> Tensor:
        assert {some.device for some in (query_THD, keys, values, *rows[:3])} == {GPU}
        return query_THD * scaling


over_blocks = _OverBlocks()


@contextmanager
def _guarded() -> Iterator[None]:
    """Whatever slices a tensor sets its device first, and PyTorch's builds for CPUs cannot set a
    GPU: the guard of meta tensors, which does nothing, stands in."""
    if torch.backends.cuda.is_built():
        yield
        return
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    guards = (ctypes.c_void_p * (_META + 1)).in_dll(library, _GUARDS)
    guards[_CUDA] = guards[_META]
    try:
        yield
    finally:
        guards[_CUDA] = None


class Event:
    """Of CUDA: a thousandth of a second lies between two."""

    has_passed = True

    def __init__(self, waits: list[str]) -> None:
        self._waits = waits

    def record(self, stream: object) -> None:
        pass

    def query(self) -> bool:
        return self.has_passed

    def synchronize(self) -> None:
        self._waits.append("synchronize")
        Event.has_passed = True

    def elapsed_time(self, end: Event) -> float:
        assert self.has_passed, "CUDA raises an error"
        return 1.0


class _Gpu(TorchDispatchMode):
    def __init__(self, waits: list[str]) -> None:
        super().__init__()
        self._waits = waits
        self._pinned: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if name == "is_pinned":
            return any(args[0] is tensor for tensor in self._pinned)
        if name in _PINNING:
            return self._pin(args[0])
        if not _is_on_gpu(args, kwargs):
            with unset_fake_temporarily():
                return func(*args, **kwargs)
        if name in _ANSWERS:
            self._waits.append(str(func))
            return _ANSWERS[name]
        if name in _INDEXING and _are_on_host([*args[1], *args[2:3]]):
            self._waits.append(f"{func} of the host")
        if name in _COPIES:
            return self._copy(func, args, kwargs)
        return func(*args, **kwargs)

    def _pin(self, tensor: Tensor) -> Tensor:
        with unset_fake_temporarily():
            self._pinned.append(tensor.clone())
        return self._pinned[-1]

    def _copy(self, func: Any, args: Any, kwargs: Any) -> Tensor:
        is_in_place = func.overloadpacket.__name__ == "copy_"
        source = args[1] if is_in_place else args[0]
        device = args[0].device if is_in_place else _value_of("device", func, args, kwargs)
        if device is None or device.type == source.device.type:
            return func(*args, **kwargs)
        is_pinned = any(source is tensor for tensor in self._pinned)
        if not (is_pinned and _value_of("non_blocking", func, args, kwargs)):
            self._waits.append(str(func))
        if is_in_place:
            return args[0]
        dtype = _value_of("dtype", func, args, kwargs) or source.dtype
        if device.type == "cuda":
            return torch.empty(source.shape, dtype=dtype, device=device)
        with unset_fake_temporarily():
            return torch.zeros(source.shape, dtype=dtype)


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor, scale: float
) -> Tensor:
    return (query @ key.transpose(-1, -2) * scale + attn_mask).softmax(dim=-1) @ value


def _zeros(shape: Sequence[int]) -> Any:
    return [_zeros(shape[1:]) for _ in range(shape[0])] if shape else 0


def _is_on_gpu(args: Any, kwargs: dict[str, Any]) -> bool:
    values = list(flat((args, kwargs)))
    return any(isinstance(value, FakeTensor) for value in values) or any(
        isinstance(value, torch.device) and value.type == "cuda" for value in values
    )


def _are_on_host(tensors: Sequence[Any]) -> bool:
    """Any of an index and of what is put there: PyTorch copies both, a single number too."""
    return any(isinstance(one, Tensor) and one.device.type == "cpu" for one in tensors)


def _value_of(name: str, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Of an argument by its name, wherever it stands."""
    names = [argument.name for argument in func._schema.arguments]
    if name in names[: len(args)]:
        return args[names.index(name)]
    return kwargs.get(name)
