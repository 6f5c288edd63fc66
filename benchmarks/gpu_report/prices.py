"""Price of a verification row: passes by sequences, tokens of each and cached tokens."""

from __future__ import annotations

from dataclasses import asdict

from benchmarks.gpu_report.networks import cached, random_network, whole_blocks
from benchmarks.gpu_report.results import Findings
from benchmarks.gpu_report.settings import Settings
from benchmarks.row_prices import prices


def measure(settings: Settings, findings: Findings) -> None:
    """Write a row for each size. Seconds include the host's part and the choice of tokens."""
    sizes = settings.sizes
    row_len = whole_blocks(max(sizes.priced_cached) + max(sizes.priced_tokens))
    model = cached(
        random_network(sizes.target, settings),
        tokens=(max(sizes.priced_sequences) + 1) * row_len,
        max_len=row_len,
    )
    for context in sizes.priced_cached:
        for price in prices(
            model, context, sizes.repeats, sizes.priced_tokens, sizes.priced_sequences
        ):
            findings.row("prices", **asdict(price))
