"""What the coordinator logs now and then, in the words that users of vLLM search for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from deployments.metrics.families.reading import TARGET, kv_usage
from specdec.v1 import generation_pb2 as pb

PERIOD_S = 10.0


def log_lines(
    before: pb.PoolStatusResponse, now: pb.PoolStatusResponse, seconds: float, cell: int
) -> Iterator[str]:
    """Of the `seconds` between two snapshots of one coordinator; nothing where nothing was done."""
    since = {name: count - before.counters.get(name, 0) for name, count in now.counters.items()}
    num_prompt, num_generated = since.get("num_prompt_tokens", 0), since.get("num_committed", 0)
    if not (num_prompt or num_generated or now.num_running or now.num_waiting):
        return
    yield (
        f"Cell {cell}: Avg prompt throughput: {num_prompt / seconds:.1f} tokens/s, "
        f"Avg generation throughput: {num_generated / seconds:.1f} tokens/s, "
        f"Running: {now.num_running} reqs, Waiting: {now.num_waiting} reqs, "
        f"KV cache usage: {100 * kv_usage(now):.1f}%, "
        f"Prefix cache hit rate: {100 * _hit_rate(now):.1f}%"
    )
    drafted, drafts = since.get("num_drafted", 0), since.get("num_proposed_rounds", 0)
    if drafted and drafts:
        accepted = since.get("num_accepted", 0)
        rates = (f"{count / drafts:.3f}" for count in _per_position(before, now))
        yield (
            f"SpecDecoding metrics: Mean acceptance length: {1 + accepted / drafts:.2f}, "
            f"Accepted throughput: {accepted / seconds:.2f} tokens/s, "
            f"Drafted throughput: {drafted / seconds:.2f} tokens/s, "
            f"Accepted: {accepted} tokens, Drafted: {drafted} tokens, "
            f"Per-position acceptance rate: {', '.join(rates)}, "
            f"Avg Draft acceptance rate: {100 * accepted / drafted:.1f}%"
        )


def _per_position(before: pb.PoolStatusResponse, now: pb.PoolStatusResponse) -> Iterator[int]:
    pairs = zip_longest(now.accepted_per_position, before.accepted_per_position, fillvalue=0)
    return (count - earlier for count, earlier in pairs)


def _hit_rate(status: pb.PoolStatusResponse) -> float:
    """Since the targets' start, as there: between two snapshots one may leave."""
    num_queries = sum(one.num_prefix_queries for one in status.replicas if one.role == TARGET)
    num_hits = sum(one.num_prefix_hits for one in status.replicas if one.role == TARGET)
    return num_hits / num_queries if num_queries else 0.0
