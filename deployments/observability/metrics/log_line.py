"""Lines that the coordinator logs periodically, in the words that users of vLLM search for."""

from __future__ import annotations

from collections.abc import Iterator

from deployments.names import Part
from deployments.observability.metrics.families.reading import kv_usage
from deployments.observability.metrics.rates import ACCEPTED, Growth
from specdec.v1 import generation_pb2 as pb

PERIOD_S = 10.0


def log_lines(lately: Growth, now: pb.PoolStatusResponse, cell: int) -> Iterator[str]:
    """Yield the lines for the growth since the previous lines. Yields nothing if there was no
    work."""
    seconds = lately.seconds or PERIOD_S
    num_prompt, num_generated = lately["num_prompt_tokens"], lately["num_committed"]
    if not (num_prompt or num_generated or now.num_running or now.num_waiting):
        return
    yield (
        f"Cell {cell}: Avg prompt throughput: {num_prompt / seconds:.1f} tokens/s, "
        f"Avg generation throughput: {num_generated / seconds:.1f} tokens/s, "
        f"Running: {now.num_running} reqs, Waiting: {now.num_waiting} reqs, "
        f"KV cache usage: {100 * kv_usage(now):.1f}%, "
        f"Prefix cache hit rate: {100 * _hit_rate(now):.1f}%"
    )
    drafted, drafts = lately["num_drafted"], lately["num_proposed_rounds"]
    if drafted and drafts:
        accepted = lately["num_accepted"]
        rates = (f"{count / drafts:.3f}" for count in lately.each(ACCEPTED))
        yield (
            f"SpecDecoding metrics: Mean acceptance length: {1 + accepted / drafts:.2f}, "
            f"Accepted throughput: {accepted / seconds:.2f} tokens/s, "
            f"Drafted throughput: {drafted / seconds:.2f} tokens/s, "
            f"Accepted: {accepted:.0f} tokens, Drafted: {drafted:.0f} tokens, "
            f"Per-position acceptance rate: {', '.join(rates)}, "
            f"Avg Draft acceptance rate: {100 * accepted / drafted:.1f}%"
        )


def _hit_rate(status: pb.PoolStatusResponse) -> float:
    """Return the hit rate since the targets' start. Between two snapshots a target may leave."""
    targets = [one for one in status.replicas if one.role == Part.TARGET]
    num_queries = sum(one.num_prefix_queries for one in targets)
    return sum(one.num_prefix_hits for one in targets) / num_queries if num_queries else 0.0
