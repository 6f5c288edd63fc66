"""What prompts that come at once cost the streams that run: one target's limit of catch-up tokens.

The pool and the replicas are those of the service, two groups at a replica. A pass takes what it
takes here, by the CPU time of its thread (by the clock with several threads); messages take
nothing, and draft and target do not disturb each other. Limits are measured in turns.

    python -m benchmarks.prefill_limit --output benchmarks/results/prefill_limit.json
"""

from __future__ import annotations

import heapq
import itertools
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from deployments.config.scheduler import MAX_OPEN_LEASES
from deployments.demo.models import resolve_model
from specdec_core.config import KPolicyName, Numerics, PoolConfig, SpecMethod, SpeculationConfig
from specdec_core.loading.loader import LoadConfig, load_pair
from specdec_core.messages import GroupLease, GroupResult, Role
from specdec_core.model import CachedModel, Feed, replica_info
from specdec_core.request import Request
from specdec_core.sampling_params import SamplingParams
from specdec_core.scheduler import Emit, Scheduler, SendFree, SendLease
from specdec_core.worker.replica import Replica

_STREAM_PROMPT = 30
_ENDLESS = 2000
"""Tokens of a stream: more than it has until the last prompt has its first token."""
_BEFORE_S = 1.0
"""That streams run before the prompts come."""
_PASSES = (32, 64, 128, 256, 512, 544, 768, 1024, 2048)
"""Prompt tokens, in rows of a chunk."""
_CHUNK = PoolConfig().prefill_chunk


def main(
    model: str = "smollm2-135m",
    draft: Annotated[str, typer.Option(help="Empty: plain decoding.")] = "",
    limits: Annotated[str, typer.Option(help="0: none.")] = "0,256,512,1024",
    streams: int = 4,
    prompts: int = 16,
    prompt_len: int = 250,
    repeats: int = 5,
    threads: int = 1,
    output: Path | None = None,
) -> None:
    """Measure passes by prompt tokens, and what streams and prompts wait under each limit."""
    torch.set_num_threads(threads)
    clock = time.thread_time if threads == 1 else time.perf_counter
    load = LoadConfig(numerics=Numerics.EXACT, kv_cache_tokens=32768, max_model_len=4096)
    pair = load_pair(resolve_model(model), resolve_model(draft) if draft else None, load)
    models: dict[Role, CachedModel] = {Role.TARGET: pair.target.model}
    if pair.draft is not None:
        models[Role.DRAFT] = pair.draft.model
    load_shape = (streams, prompts, prompt_len)
    runs: dict[int, list[dict[str, float]]] = {int(limit): [] for limit in limits.split(",")}
    for turn in track(range(repeats), description="turns"):
        for limit, found in runs.items():
            world = World(models, limit or None, clock, random.Random(turn))
            found.append(world.run(*load_shape))
    result = {
        "model": model,
        "draft": draft,
        "threads": threads,
        "torch": torch.__version__,
        "streams": streams,
        "prompts": prompts,
        "prompt_len": prompt_len,
        "passes_s": {role.value: _passes(one, clock, repeats) for role, one in models.items()},
        "limits": [{"limit": limit, **_medians(found)} for limit, found in runs.items()],
    }
    _show(result)
    if output is not None:
        output.write_text(json.dumps(result, indent=1) + "\n")


@dataclass(eq=False)
class World:
    """One target, perhaps one draft, in virtual time."""

    models: Mapping[Role, CachedModel]
    limit: int | None
    clock: Callable[[], float]
    rng: random.Random
    now: float = 0.0
    told_at: dict[str, list[float]] = field(default_factory=dict)
    _came_at: dict[str, float] = field(default_factory=dict)
    _free_at: dict[str, float] = field(default_factory=dict)
    _coming: list[tuple[float, int, GroupResult]] = field(default_factory=list)

    def __post_init__(self) -> None:
        has_draft = Role.DRAFT in self.models
        method = SpecMethod.DRAFT_MODEL if has_draft else SpecMethod.NONE
        config = PoolConfig(
            max_prefill_tokens=self.limit,
            max_open_leases=MAX_OPEN_LEASES,
            speculation=SpeculationConfig(method=method, k_policy=KPolicyName.FIXED),
        )
        self.pool = Scheduler(config, epoch=1)
        self._replicas = {role.value: Replica(model, role) for role, model in self.models.items()}
        for role, model in self.models.items():
            self.pool.register(replica_info(model, role, role.value, 1), self.now)

    def run(self, num_streams: int, num_prompts: int, prompt_len: int) -> dict[str, float]:
        """Streams first, and all prompts at once while they run."""
        streams = [self._add(_STREAM_PROMPT, _ENDLESS) for _ in range(num_streams)]
        self._run_until(lambda: self.now >= _BEFORE_S)
        began = self.now
        prompts = [self._add(prompt_len, 1) for _ in range(num_prompts)]
        self._run_until(lambda: all(name in self.told_at for name in prompts))
        gaps = [gap for name in streams for gap in self._gaps(name, began)]
        firsts = [self.told_at[name][0] - began for name in prompts]
        ended = self.now
        told = sum(began < at <= ended for name in streams for at in self.told_at[name])
        for replica in self._replicas.values():
            replica.reset()
        return {
            "longest_gap_s": max(gaps),
            "mean_first_token_s": statistics.mean(firsts),
            "last_first_token_s": max(firsts),
            "prompt_tokens_per_s": num_prompts * prompt_len / max(firsts),
            "stream_events_per_s": told / (ended - began),
        }

    def _gaps(self, name: str, began: float) -> Iterator[float]:
        """Between two pieces of news of a stream, the wait that is not over included."""
        times = [*self.told_at[name], self.now]
        return (b - a for a, b in itertools.pairwise(times) if b > began)

    def _add(self, prompt_len: int, max_tokens: int) -> str:
        name = f"r{len(self._came_at)}"
        self._came_at[name] = self.now
        vocab_size = self.models[Role.TARGET].vocab_size
        ids = tuple(self.rng.randrange(vocab_size) for _ in range(prompt_len))
        params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        request = Request(request_id=name, prompt_token_ids=ids, params=params)
        self.pool.add(request, self.now)
        return name

    def _run_until(self, is_over: Callable[[], bool]) -> None:
        while True:
            for command in self.pool.advance(self.now):
                if isinstance(command, SendLease):
                    self._execute(command.lease)
                elif isinstance(command, SendFree):
                    self._replicas[command.replica_id].free(command.sequence_ids)
                elif isinstance(command, Emit):
                    self.told_at.setdefault(command.event.request_id, []).append(self.now)
            if is_over():
                return
            self._next()

    def _execute(self, lease: GroupLease) -> None:
        started = self.clock()
        result = self._replicas[lease.replica_id].execute(lease)
        seconds = self.clock() - started
        ends = max(self.now, self._free_at.get(lease.replica_id, 0.0)) + seconds
        self._free_at[lease.replica_id] = ends
        heapq.heappush(self._coming, (ends, lease.lease_id, result._replace(seconds=seconds)))

    def _next(self) -> None:
        """An answer comes, or the time that the pool waits for."""
        deadline = self.pool.next_deadline()
        if deadline is not None and (not self._coming or deadline < self._coming[0][0]):
            self.now = max(self.now, deadline)
            return
        self.now, _, result = heapq.heappop(self._coming)
        self.pool.on_result(result, self.now)


def _passes(model: CachedModel, clock: Callable[[], float], repeats: int) -> list[dict[str, float]]:
    """Median seconds by prompt tokens."""
    found: dict[int, list[float]] = {count: [] for count in _PASSES}
    for _ in range(repeats):
        for count, seconds in found.items():
            lengths = [min(_CHUNK, count - start) for start in range(0, count, _CHUNK)]
            feeds = [Feed(model.allocate(), range(100, 100 + length), 1) for length in lengths]
            started = clock()
            model.score(feeds)
            seconds.append(clock() - started)
            for feed in feeds:
                model.free(feed.slot)
    return [{"tokens": n, "seconds": statistics.median(s)} for n, s in found.items()]


def _medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def _show(result: Mapping[str, Any]) -> None:
    for role, passes in result["passes_s"].items():
        table = Table("tokens", "ms", "us per token", title=f"a {role}'s pass")
        for one in passes:
            ms = one["seconds"] * 1e3
            table.add_row(f"{one['tokens']}", f"{ms:.0f}", f"{ms * 1e3 / one['tokens']:.0f}")
        Console().print(table)
    table = Table(*result["limits"][0], title="under a limit")
    for one in result["limits"]:
        table.add_row(*(f"{value:.3g}" if value else "none" for value in one.values()))
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
