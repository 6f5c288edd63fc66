"""Plain and speculative tokens per second: prefill left out, every row running, K by goodput.

Proposals are right with a chosen probability, and cost a draft's passes. What the target chooses is
arranged as well: random weights have near ties, and a run that took another turn at one would
accept nothing of a recorded continuation from there on.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from benchmarks.gpu_report.arranged import Decoded, Way, decode, drafted_from, engine
from benchmarks.gpu_report.networks import Pair, cached_pair, random_networks
from benchmarks.gpu_report.results import Findings
from benchmarks.gpu_report.settings import Settings, Sizes
from benchmarks.paper.answer_book import AnswerBook
from benchmarks.synthetic import requests_for
from specdec_core import Request, SamplingParams, SpecMethod
from specdec_core.config import KPolicyName, Numerics
from specdec_core.errors import NotExactError
from specdec_core.loading.profiler import time_steps
from specdec_core.loading.self_check import make_exact
from specdec_core.messages import Role

GOAL_ACCEPTANCE = 0.7
_RUNS = 3
_PLAIN_RUNS = 2


def measure(settings: Settings, findings: Findings) -> None:
    """Fast numerics first: exact ones wrap the linears."""
    sizes = settings.sizes
    networks = random_networks(settings)
    max_len = sizes.contexts[0] + sizes.tokens + 2 * sizes.max_k
    pair = cached_pair(networks, rows=max(sizes.rows), max_len=max_len)
    for numerics in (Numerics.FAST, Numerics.EXACT):
        if numerics is Numerics.EXACT and not _is_made_exact(pair, findings):
            return
        _time_passes(pair)
        for rows in sizes.rows:
            _measure_rows(pair, rows, numerics, sizes, findings)


def _is_made_exact(pair: Pair, findings: Findings) -> bool:
    try:
        findings.fact("exact classes", str(make_exact(pair.target)))
    except NotExactError as error:
        findings.fact("exact numerics refused", str(error))
        return False
    return True


def _time_passes(pair: Pair) -> None:
    """What the goodput policy knows before the first round, as after a load in service."""
    pair.target.step_times = time_steps(pair.target, Role.TARGET)
    pair.draft.step_times = time_steps(pair.draft, Role.DRAFT)


def _measure_rows(
    pair: Pair, rows: int, numerics: Numerics, sizes: Sizes, findings: Findings
) -> None:
    """Plain decoding, then each acceptance; in exact numerics that of the goal alone."""
    script = Script.random(rows, sizes, pair.target.vocab_size)
    plain = _settled(pair, script, Way(rows=rows), 1.0)
    _write(findings, numerics, rows, script, plain, plain, None)
    is_exact = numerics is Numerics.EXACT
    for acceptance in (GOAL_ACCEPTANCE,) if is_exact else sizes.acceptances:
        way = Way(
            method=SpecMethod.DRAFT_MODEL, rows=rows, k=sizes.max_k, policy=KPolicyName.GOODPUT
        )
        found = _settled(pair, script, way, acceptance)
        _write(findings, numerics, rows, script, found, plain, acceptance)


@dataclass(frozen=True, slots=True)
class Script:
    """Prompts, and what the target is made to answer."""

    prompts: list[tuple[int, ...]]
    answers: list[tuple[int, ...]]
    vocab_size: int

    @classmethod
    def random(cls, rows: int, sizes: Sizes, vocab_size: int) -> Script:
        context = sizes.contexts[0]
        generator = torch.Generator().manual_seed(rows)
        shape = (rows, context + sizes.tokens)
        ids = torch.randint(vocab_size, shape, generator=generator).tolist()
        return cls(
            [tuple(row[:context]) for row in ids], [tuple(row[context:]) for row in ids], vocab_size
        )

    def book(self, probability: float) -> AnswerBook:
        return AnswerBook(
            self.prompts, self.answers, probability=probability, vocab_size=self.vocab_size
        )

    def requests(self) -> list[Request]:
        params = SamplingParams(temperature=0.0, max_tokens=len(self.answers[0]))
        return requests_for(self.prompts, params)


def _settled(pair: Pair, script: Script, way: Way, acceptance: float) -> Decoded:
    """The last of some runs of one engine, as a service runs for days: those before record what it
    replays, and its policy learns what passes cost and drafts are worth."""
    target = drafted_from(script.book(1.0), pair.target)
    draft = drafted_from(script.book(acceptance), pair.draft)
    one = engine(way, target, draft)
    num_runs = _PLAIN_RUNS if way.method is SpecMethod.NONE else _RUNS
    return [decode(one, script.requests()) for _ in range(num_runs)][-1]


def _write(
    findings: Findings,
    numerics: Numerics,
    rows: int,
    script: Script,
    found: Decoded,
    plain: Decoded,
    acceptance: float | None,
) -> None:
    seconds = {f"{stage} s": value for stage, value in found.stats.seconds.items() if value}
    findings.row(
        "decoding",
        numerics=str(numerics),
        rows=rows,
        method="plain" if acceptance is None else "exspec",
        acceptance=acceptance,
        tokens_per_s=found.tokens_per_second,
        over_plain=found.tokens_per_second / max(plain.tokens_per_second, 1e-9),
        mean_k=found.mean_k,
        as_arranged=found.answers == tuple(script.answers),
        **seconds,
    )
