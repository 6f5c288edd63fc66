"""Passes by rows and contexts against what each must read: its weights once, and the keys and
values of its rows. The bound is that over the bandwidth that a plain sum reaches."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks.gpu_report.networks import (
    Network,
    cached,
    random_networks,
    weight_bytes,
    whole_blocks,
)
from benchmarks.gpu_report.results import Findings
from benchmarks.gpu_report.settings import Settings, Sizes
from benchmarks.gpu_report.timing import bytes_per_second, filled, median_s, roll_back
from specdec_core.model import score
from specdec_core.sampling.sampler import choose
from specdec_core.sampling_params import SampleRow, SamplingParams, SamplingRules
from specdec_core.worker.model_runner import ModelRunner
from specdec_core.worker.round import propose, round_row

GREEDY = SamplingParams(temperature=0.0)
_CHOICES = {"greedy": GREEDY, "sampled, top-p 0.95": SamplingParams(temperature=0.8, top_p=0.95)}
_SLACK = 64
"""Tokens behind a context: what a pass adds."""


def measure(settings: Settings, findings: Findings) -> None:
    device = torch.device(settings.device)
    roof = Roof(settings.sizes, bytes_per_second(device), findings)
    findings.fact("GB/s read by a sum", roof.bandwidth / 1e9)
    target, draft = random_networks(settings)
    measure_choice(target.config.vocab_size, device, roof)
    for context in settings.sizes.contexts:
        roof.measure(target, context, ("decode", "verify"))
        roof.measure(draft, context, ("draft",))
    roof.measure(target, settings.sizes.contexts[0], ("decode", "verify"), is_recorded=False)


@dataclass(frozen=True, slots=True)
class Roof:
    """Times passes and writes them down next to their bounds."""

    sizes: Sizes
    bandwidth: float
    """Bytes per second."""
    findings: Findings

    def measure(
        self, network: Network, context: int, works: Sequence[str], *, is_recorded: bool = True
    ) -> None:
        """Each work at each number of rows that the cache is to hold."""
        gc.collect()  # what ran before gives its cache and its recordings back
        batches = [rows for rows in self.sizes.rows if rows * context <= self.sizes.max_cached]
        batches = batches if is_recorded else batches[:1]
        row_len = whole_blocks(context + _SLACK)
        model = cached(
            network,
            tokens=(max(batches) + 1) * row_len,
            max_len=row_len,
            is_recorded=is_recorded,
        )
        with filled(model, max(batches), context) as slots:
            for rows in batches:
                for work in works:
                    self._time(model, work, slots[:rows], context, is_recorded)

    def _time(
        self,
        model: ModelRunner,
        work: str,
        slots: Sequence[int],
        context: int,
        is_recorded: bool,
    ) -> None:
        k = self.sizes.k
        run, undo = _runs(model, slots, context, k)[work], partial(roll_back, model, slots, context)
        seconds = median_s(run, self.sizes.repeats, model.device, undo)
        num_passes, width = (k, 1) if work == "draft" else (1, k + 1 if work == "verify" else 1)
        kv_bytes = len(slots) * context * model.cache_shape.bytes_per_token
        read = weight_bytes(model.module, len(slots) * width) + kv_bytes
        bound_s = num_passes * read / self.bandwidth
        self.findings.row(
            "passes",
            work=work,
            mode="recorded" if is_recorded else "eager",
            context=context,
            rows=len(slots),
            ms=seconds * 1e3,
            bound_ms=bound_s * 1e3,
            of_bound=bound_s / seconds,
        )


def _runs(
    model: ModelRunner, slots: Sequence[int], context: int, k: int
) -> dict[str, Callable[[], object]]:
    rules = SamplingRules(GREEDY, prompt_len=context)
    turns = [round_row(slot, (3,), (), k, rules) for slot in slots]
    return {
        "decode": lambda: score(model, [(slot, (3,), 1) for slot in slots]),
        "verify": lambda: score(model, [(slot, range(3, 4 + k), k + 1) for slot in slots]),
        "draft": lambda: propose(model, turns),
    }


def measure_choice(vocab_size: int, device: torch.device, roof: Roof) -> None:
    """Of a verification's tokens, from logits that are as flat as random weights make them."""
    sizes = roof.sizes
    for rows in sizes.rows:
        count = rows * (sizes.k + 1)
        logits = torch.randn(count, vocab_size, dtype=getattr(torch, sizes.dtype), device=device)
        for name, params in _CHOICES.items():
            places = [SampleRow(SamplingRules(params, prompt_len=0), at) for at in range(count)]
            run = partial(choose, logits, places, vocab_size)
            seconds = median_s(run, sizes.repeats, device)
            roof.findings.row(
                "choice of tokens", kind=name, rows=rows, tokens=count, ms=seconds * 1e3
            )
