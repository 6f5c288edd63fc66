"""The one client of all servers: `specdec bench serve`'s, in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.harness.client import ask_all
from benchmarks.served_peers.engines import Server
from benchmarks.served_peers.prompts import request_prompt
from deployments.cli.bench.figures import decoding, figures
from deployments.cli.bench.load import LoadRun, RequestRecord
from deployments.cli.bench.speculation import SpecCounts
from deployments.cli.generate.prompt_file import PromptLine
from deployments.observability.metrics.families.rounds import ROUND_STAGE
from deployments.observability.metrics.round_stages import PASS, Stage
from specdec_core.errors import SpecdecError
from specdec_core.messages import Role


class Busy(NamedTuple):
    """A load as long as every stream has a request under way: until the first one has nothing left
    to ask for. What follows is emptier the more the streams' last answers lie apart."""

    tokens: float
    """Those that came until then."""
    seconds: float


def passes_of(run: LoadRun) -> dict[str, float]:
    """What the server tells of its target's passes: how many, their seconds, the seconds that
    rounds took besides, tokens that were drafted and accepted. Empty where it tells none."""
    before, after = map(_target_totals, run.metrics_pages)
    passed, speculation = after - before, run.speculation or SpecCounts()
    if not passed[PASS[Role.TARGET], "count"]:
        return {}
    return {
        "count": passed[PASS[Role.TARGET], "count"],
        "pass_s": passed[PASS[Role.TARGET], "sum"],
        "between_s": passed[Stage.ADDED, "sum"],
        "drafted": speculation.num_draft_tokens,
        "accepted": speculation.num_accepted_tokens,
    }


def _target_totals(page: str) -> Counter[tuple[str, str]]:
    """Return the totals of the target's stages from /metrics, by stage and count or sum."""
    totals: Counter[tuple[str, str]] = Counter()
    lines = [line for line in page.splitlines() if line.startswith(ROUND_STAGE)]
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            if sample.labels["role"] == Role.TARGET:
                totals[sample.labels["stage"], sample.name.rpartition("_")[2]] += sample.value
    return totals


class Asked(NamedTuple):
    """Found by the client. The names are those of a Reading."""

    input_tokens: int
    tokens: int
    seconds: float
    ttft_ms: dict[str, float]
    gap_ms: dict[str, float]
    busy_tokens: float
    busy_s: float
    decode_tokens: float
    decode_s: float
    passes: dict[str, float]
    """As `passes_of`."""


class Client:
    """Of one server."""

    def __init__(self, server: Server, url: str, timeout_s: float) -> None:
        self._server, self._url, self._timeout_s = server, url, timeout_s
        self._num_requests = 0

    def ask(
        self,
        lines: Sequence[PromptLine],
        *,
        streams: int,
        max_tokens: int,
        temperature: float,
        fields: Mapping[str, Any],
        ignore_eos: bool = True,
    ) -> Asked:
        """All lines, `streams` at a time. Raises SpecdecError for an answer of other length, unless
        the model may end it."""
        prompts = [
            request_prompt(line, self._body(place, max_tokens, temperature, ignore_eos))
            for place, line in enumerate(lines)
        ]
        run = ask_all(self._url, prompts, streams, self._timeout_s, extra_body=fields)
        return read(run, streams, max_tokens, ignore_eos=ignore_eos)

    def _body(
        self, place: int, max_tokens: int, temperature: float, ignore_eos: bool
    ) -> dict[str, Any]:
        self._num_requests += 1
        unshared = self._server.unshared(f"served-peers-{self._num_requests}")
        return request_body(place, max_tokens, temperature, ignore_eos) | dict(unshared)


def request_body(
    place: int, max_tokens: int, temperature: float, ignore_eos: bool = True
) -> dict[str, Any]:
    """The same for every server; drawn tokens have a seed by the place of the prompt."""
    seed = {"seed": place} if temperature > 0 else {}
    return {"temperature": temperature, "max_tokens": max_tokens, "ignore_eos": ignore_eos, **seed}


def read(run: LoadRun, streams: int, max_tokens: int, *, ignore_eos: bool = True) -> Asked:
    """Raises SpecdecError where an answer failed or has another number of tokens."""
    if run.failures:
        ((reason, number), *_) = run.failures.most_common()
        raise SpecdecError(f"{number} of {len(run.records)} requests failed: {reason}")
    lengths = {record.usage.num_output for record in run.records}
    if ignore_eos and lengths != {max_tokens}:
        raise SpecdecError(f"answers of {sorted(lengths)} tokens, asked for {max_tokens} each")
    found = figures(run)
    until_idle, decoded = busy(run.records, streams), decoding(run.records)
    return Asked(
        input_tokens=found["total_input_tokens"],
        tokens=found["total_output_tokens"],
        seconds=run.duration_s,
        ttft_ms={name: found[f"{name}_ttft_ms"] for name in ("p50", "p90")},
        gap_ms={name: found[f"{name}_itl_ms"] for name in ("p50", "p99")},
        busy_tokens=until_idle.tokens,
        busy_s=until_idle.seconds,
        decode_tokens=decoded.tokens,
        decode_s=decoded.seconds,
        passes=passes_of(run),
    )


def busy(records: Sequence[RequestRecord], streams: int) -> Busy:
    """Of a load whose streams ask as soon as they have their answer."""
    ends = sorted(record.end_s for record in records)
    until_s = ends[max(len(ends) - streams, 0)]
    tokens = sum(
        num_tokens
        for record in records
        for at_s, num_tokens in record.tokens_by_time
        if at_s <= until_s
    )
    return Busy(tokens, until_s - min(record.start_s for record in records))
