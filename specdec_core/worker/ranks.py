"""The ranks of one replica: rank 0 decides, and every other rank repeats what it did to its model.

Rank 0 runs the leases: it knows sequences, IDs and grammars, and it samples. The other ranks hold
a model and its KV cache alone. They get one message per pass: the changes of the cache since the
last pass, then the pass. Equal calls in equal order leave equal slots and blocks on each rank. When
a rank fails or differs, the pass fails on rank 0, and with it the replica. The scheduler then
continues its sequences elsewhere, as after any failure.

Each rank computes the whole model. A sharded model would exchange its parts within a pass.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from specdec_core.errors import RankError
from specdec_core.model import CachedModel, ForwardInput, ForwardOutput
from specdec_core.step_times import StepTime

_NO_LIMIT = timedelta(days=365)
"""Followers wait for the next pass. A lost connection ends the wait."""
_SLOT_CHANGES = ("allocate", "free", "rollback")
_PREFIX_CHANGES = ("publish", "match_prefix", "evict", "evict_all")

Change = tuple[str, Sequence[Any], int | None]
"""Name of a method that changes the cache, its arguments, and what it returned on rank 0."""


class RankGroup:
    """The processes of one replica, connected by gloo."""

    def __init__(
        self, rank: int, size: int, store: Store, is_alive: Callable[[], bool] | None = None
    ) -> None:
        """Join the group, and wait until all of its `size` ranks have joined.

        A process is in one group. `is_alive` tells rank 0 whether the other processes still run.
        """
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=_NO_LIMIT)
        self._is_alive = is_alive

    def lead(self, model: CachedModel) -> CachedModel:
        """Return the model that rank 0 runs the leases over. Its passes run on every rank."""
        return LeadingModel(model, self)

    def follow(self, model: CachedModel) -> None:
        """Repeat what rank 0 does to its model, until it closes the group.

        Raises RankError if rank 0 is lost, or if a change turns out differently on this rank. A
        pass that fails on all ranks raises its own error.
        """
        slots: dict[int, int] = {}
        while (message := self._receive()) is not None:
            changes, batch = message
            for change in changes:
                _repeat(model, slots, change)
            own_batch = batch._replace(slots=[slots[slot] for slot in batch.slots])
            self.run(partial(model.forward, own_batch))

    def check(self) -> None:
        """Raise RankError if a rank is gone. Any thread of rank 0 may call it, also between
        passes."""
        if self._is_alive is not None and not self._is_alive():
            raise RankError("a rank of this replica has ended")

    def close(self) -> None:
        """End the other ranks, those that are left. Rank 0 calls it when no pass runs."""
        with suppress(RankError):
            self._broadcast(b"")
        dist.destroy_process_group()

    def send(self, changes: Sequence[Change], batch: ForwardInput) -> None:
        """Send the other ranks the changes since the last pass, and the next pass."""
        plain = [
            (name, [_plain(value) for value in args], result) for name, args, result in changes
        ]
        self._broadcast(json.dumps([plain, [list(column) for column in batch]]).encode())

    def run(self, run_pass: Callable[[], ForwardOutput]) -> ForwardOutput:
        """Run a pass on this rank; return its results once it has ended alike on all ranks.

        Raises the error of a pass that failed on all ranks, and RankError if it failed on some.
        """
        error: Exception | None = None
        try:
            output = run_pass()
        except Exception as raised:
            error = raised
        has_failed = int(error is not None)
        bounds = torch.tensor([has_failed, -has_failed])
        with _lost_connections():
            dist.all_reduce(bounds, op=dist.ReduceOp.MAX)
        if bounds.sum():
            raise RankError("a pass ended differently on the ranks of this replica") from error
        if error is not None:
            raise error
        return output

    def _receive(self) -> tuple[list[Change], ForwardInput] | None:
        """Return the next message of rank 0; None after the last one."""
        text = self._broadcast(None)
        if not text:
            return None
        changes, columns = json.loads(text)
        return changes, ForwardInput(*map(tuple, columns))

    def _broadcast(self, text: bytes | None) -> bytes:
        """Send `text` from rank 0, or receive it on another rank; return it."""
        length = torch.tensor([0 if text is None else len(text)])
        with _lost_connections():
            dist.broadcast(length, src=0)
            content = torch.zeros(int(length), dtype=torch.uint8)
            if text:
                content = torch.frombuffer(bytearray(text), dtype=torch.uint8)
            if len(content):
                dist.broadcast(content, src=0)
        return content.numpy().tobytes()


class LeadingModel:
    """The model of rank 0, which the other ranks follow; implements CachedModel and PrefixCache.

    A change of the cache is sent with the next pass, because only passes read the cache.
    """

    def __init__(self, model: CachedModel, group: RankGroup) -> None:
        self._model = model
        self._group = group
        self._changes: list[Change] = []
        self.prefix_cache = None if model.prefix_cache is None else self
        self.vocab_size = model.vocab_size
        self.max_model_len = model.max_model_len
        self.num_blocks = model.num_blocks
        self.kv_cache_spec = model.kv_cache_spec
        self.tile_rows = model.tile_rows

    def forward(self, batch: ForwardInput) -> ForwardOutput:
        changes, self._changes = self._changes, []
        self._group.send(changes, batch)
        return self._group.run(partial(self._model.forward, batch))

    def allocate(self) -> int:
        return int(self._change("allocate"))

    def free(self, slot: int) -> None:
        self._change("free", slot)

    def rollback(self, slot: int, length: int) -> None:
        if self._model.cached_len(slot) > length:
            self._change("rollback", slot, length)

    def publish(self, slot: int, ids: array[int], root: str) -> None:
        self._change("publish", slot, ids, root)

    def match_prefix(self, slot: int, ids: array[int], root: str) -> int:
        return int(self._change("match_prefix", slot, ids, root))

    def evict(self, slot: int) -> None:
        self._change("evict", slot)

    def evict_all(self) -> None:
        self._change("evict_all")

    def cached_len(self, slot: int) -> int:
        return self._model.cached_len(slot)

    def wait(self) -> None:
        self._model.wait()

    @property
    def num_free_blocks(self) -> int:
        return self._model.num_free_blocks

    @property
    def step_times(self) -> tuple[StepTime, ...]:
        return self._model.step_times

    @property
    def recording_s(self) -> float:
        return self._model.recording_s

    def _change(self, name: str, *args: Any) -> Any:
        """Change the cache of this rank. A change that raises is none, and is not sent."""
        result = _method(self._model, name)(*args)
        self._changes.append((name, args, result))
        return result


def _repeat(model: CachedModel, slots: dict[int, int], change: Change) -> None:
    """Repeat a change of rank 0, whose slots have the numbers that `slots` gives them here.

    Raises RankError if it turns out differently.
    """
    name, plain_args, expected = change
    if name == "allocate":
        assert expected is not None
        slots[expected] = model.allocate()
        return
    args: list[Any] = [array("i", v) if isinstance(v, list) else v for v in plain_args]
    if args:
        args[0] = slots.pop(args[0]) if name == "free" else slots[args[0]]
    result = _method(model, name)(*args)
    if result != expected:
        raise RankError(f"{name} returned {result} on this rank and {expected} on rank 0")


def _method(model: CachedModel, name: str) -> Callable[..., Any]:
    assert name in _SLOT_CHANGES + _PREFIX_CHANGES, f"{name} changes no cache"
    method: Callable[..., Any]
    method = getattr(model.prefix_cache if name in _PREFIX_CHANGES else model, name)
    return method


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, array) else value


@contextmanager
def _lost_connections() -> Iterator[None]:
    """Turn the errors of collectives into RankError."""
    try:
        yield
    except RuntimeError as error:
        raise RankError("the connection to a rank of this replica is lost") from error
