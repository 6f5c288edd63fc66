"""Kernels and gaps of passes alone, and of whole rounds with the host between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks.gpu_report.arranged import Way, drafted_from, engine
from benchmarks.gpu_report.networks import Pair, cached_pair, random_networks
from benchmarks.gpu_report.results import Findings
from benchmarks.gpu_report.roofline import GREEDY
from benchmarks.gpu_report.settings import Settings, Sizes
from benchmarks.gpu_report.speed import GOAL_ACCEPTANCE, Script
from benchmarks.gpu_report.timing import filled, roll_back
from benchmarks.gpu_report.trace import Span, busy_us, gaps_us, shares, spans_of
from specdec_core import SpecMethod
from specdec_core.engine import Engine
from specdec_core.model import score
from specdec_core.sampling_params import SamplingRules
from specdec_core.worker.model_runner import ModelRunner
from specdec_core.worker.round import propose, round_row

_SHOWN = 12
_SETTLED = 3
"""Passes or rounds before the profile: they record."""
_LONG_US = 20.0
"""A gap that the host makes, not the device."""


def measure(settings: Settings, findings: Findings) -> None:
    sizes = settings.sizes
    context, rows = sizes.contexts[0], sizes.rows[0]
    networks = random_networks(settings)
    pair = cached_pair(networks, rows=rows, max_len=context + sizes.tokens + 2 * sizes.max_k)
    view = _View(settings, findings)
    with filled(pair.target, rows, context) as slots:
        for name, count in (("decode", 1), ("verify", sizes.k + 1)):
            feeds = [(slot, range(3, 3 + count), count) for slot in slots]
            view.passes(name, pair.target, slots, partial(score, pair.target, feeds))
    with filled(pair.draft, rows, context) as slots:
        rules = SamplingRules(GREEDY, prompt_len=context)
        turns = [round_row(slot, (3,), (), sizes.k, rules) for slot in slots]
        view.passes("draft", pair.draft, slots, partial(propose, pair.draft, turns))
    for way in (Way(rows=rows), Way(rows=rows, k=sizes.k, method=SpecMethod.DRAFT_MODEL)):
        view.rounds(_running(pair, way, sizes), way)


def _running(pair: Pair, way: Way, sizes: Sizes) -> Engine:
    """An engine whose rows are all decoding."""
    script = Script.random(way.rows, sizes, pair.target.vocab_size)
    target = drafted_from(script.book(1.0), pair.target)
    running = engine(way, target, drafted_from(script.book(GOAL_ACCEPTANCE), pair.draft))
    for request in script.requests():
        running.add_request(request)
    begun: set[str] = set()
    while len(begun) < way.rows:
        begun |= {event.request_id for event in running.step()}
    return running


@dataclass(frozen=True, slots=True)
class _View:
    """Profiles work and writes down what it sees."""

    settings: Settings
    findings: Findings

    def passes(
        self,
        name: str,
        model: ModelRunner,
        slots: Sequence[int],
        work: Callable[[], object],
    ) -> None:
        context = self.settings.sizes.contexts[0]

        def run(count: int) -> None:
            for _ in range(count):
                work()
                roll_back(model, slots, context)

        self._profile(f"{name} alone", run)

    def rounds(self, running: Engine, way: Way) -> None:
        def run(count: int) -> None:
            for _ in range(count):
                running.step()

        self._profile(f"rounds, {way.name}", run)

    def _profile(self, name: str, run: Callable[[int], None]) -> None:
        count = self.settings.sizes.profiled
        run(_SETTLED)
        device = torch.device(self.settings.device)
        spans = spans_of(lambda: run(count), device, self.settings.output)
        if not spans:
            self.findings.fact(f"{name}: no profile", "the profiler saw no kernel")
            return
        self._write(name, spans, count)

    def _write(self, name: str, spans: Sequence[Span], count: int) -> None:
        took = spans[-1].end - spans[0].start
        gaps = gaps_us(spans)
        self.findings.row(
            "gaps",
            work=name,
            count=count,
            ms_each=took / count / 1e3,
            busy=busy_us(spans) / took if took else 1.0,
            kernels_each=len(spans) / count,
            long_gaps_each=sum(gap > _LONG_US for gap in gaps) / count,
            longest_gap_us=gaps[0] if gaps else 0.0,
        )
        total = sum(span.end - span.start for span in spans)
        for kernel in shares(spans)[:_SHOWN]:
            self.findings.row(
                "kernels",
                work=name,
                kernel=kernel.name[:100],
                each=kernel.calls / count,
                us_each=kernel.us / count,
                share=kernel.us / total if total else 0.0,
            )
