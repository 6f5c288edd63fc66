"""Recorders that judge: what they are given could be captured and replayed without the host."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from specdec_core.worker.cuda_graphs.recorder import DirectRecorder, Work

_HOST_METHODS = frozenset(
    {
        "item",
        "tolist",
        "cpu",
        "cuda",
        "numpy",
        "__bool__",
        "__int__",
        "__float__",
        "__index__",
        "tensor",
        "as_tensor",
        "from_numpy",
        "frombuffer",
    }
)
"""Of torch: on a GPU each waits for it or copies from the host."""
_HOST_OPERATIONS = frozenset(
    {
        "_local_scalar_dense",
        "nonzero",
        "masked_select",
        "unique",
        "_unique2",
        "bincount",
        "equal",
        "is_nonzero",
        "lift_fresh",
        "item",
        "aten.repeat_interleave.Tensor",
    }
)
"""Of ATen: the same, or the shape of what comes out depends on what goes in."""


class HostNeededError(AssertionError):
    """Work that is to be recorded asked the host."""


class _NoHostMethods(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if getattr(func, "__name__", "") in _HOST_METHODS:
            raise HostNeededError(func.__name__)
        return func(*args, **(kwargs or {}))


class _Trace(TorchDispatchMode):
    """Every operation with its shapes and the addresses of what was not made within."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []
        self.outside: set[int] = set()
        self._made: dict[int, Any] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if {func.overloadpacket.__name__, str(func)} & _HOST_OPERATIONS:
            raise HostNeededError(str(func))
        is_index = func.overloadpacket.__name__ in ("index", "index_put", "index_put_")
        if is_index and any(t.dtype == torch.bool for t in _tensors(args[1])):
            raise HostNeededError("a mask as an index")
        read = [t for t in _tensors((args, kwargs)) if _address(t) not in self._made]
        self.outside |= {_address(t) for t in read}
        shapes = tuple((tuple(t.shape), t.stride()) for t in _tensors((args, kwargs)))
        numbers = tuple(value for value in flat((args, kwargs)) if not isinstance(value, Tensor))
        outside = tuple((_address(t), t.storage_offset()) for t in read)
        self.calls.append((str(func), shapes, repr(numbers), outside))
        result = func(*args, **(kwargs or {}))
        for tensor in _tensors(result):
            if _address(tensor) not in self.outside:
                self._made[_address(tensor)] = tensor.untyped_storage()  # kept: no address twice
        return result


def flat(value: Any) -> Iterable[Any]:
    """What lists, tuples and dicts of an operation's arguments hold."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        yield value
        return
    for part in value:
        yield from flat(part)


def _tensors(value: Any) -> list[Tensor]:
    return [part for part in flat(value) if isinstance(part, Tensor)]


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class WarmingRecorder(DirectRecorder):
    """Runs the work as often as a GPU is warmed up."""

    def record(self, work: Work, clear: Work) -> Work:
        for _ in range(2):
            clear()
            work()
        return work


class ScarceRecorder(DirectRecorder):
    """Memory for so many recordings; none comes back."""

    def __init__(self, num_recordings: int) -> None:
        self.num_recorded = 0
        self._num_recordings = num_recordings

    def record(self, work: Work, clear: Work) -> Work:
        self.num_recorded += 1
        return work

    def free_bytes(self) -> int | None:
        return 2**30 if self.num_recorded < self._num_recordings else 0


class JudgingRecorder:
    """Refuses work that needs the host, and work that is not the same operations over the same
    memory each time: what a replayed graph would be."""

    def __init__(self) -> None:
        self.num_recorded = 0
        self.num_replayed = 0
        self.outside: set[int] = set()
        """Addresses of all memory that recorded work reads and did not make itself."""

    def record(self, work: Work, clear: Work) -> Work:
        """Runs it, as a warm-up does."""
        self.num_recorded += 1
        clear()
        expected = self._traced(work)

        def replay() -> None:
            self.num_replayed += 1
            found = self._traced(work)
            assert len(found) == len(expected)
            for call, recorded in zip(found, expected, strict=True):
                assert call == recorded, "a graph would do something else"

        return replay

    def free_bytes(self) -> int | None:
        return None

    def _traced(self, work: Work) -> list[tuple[Any, ...]]:
        with _NoHostMethods(), _Trace() as trace:
            work()
        self.outside |= trace.outside
        return trace.calls
