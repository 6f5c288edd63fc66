"""Counted outputs of a processor against its enumerated law."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache

from tests.distribution.chi_square import ChiSquare, goodness_of_fit, total
from tests.distribution.law import NextLaw, joint_law, next_id_law, window_law
from tests.distribution.processors import NUM_TOKENS, Processor
from tests.distribution.runs import Counts, TableModel


def merged(samples: Iterable[Counts]) -> Counts:
    """All samples as one; they must not share seeds."""
    counts: dict[tuple[int, ...], Counter[tuple[int, ...]]] = {}
    for sample in samples:
        for prompt, outputs in sample.items():
            counts.setdefault(prompt, Counter()).update(outputs)
    return counts


def check(
    counts: Counts,
    processor: Processor,
    window: tuple[int, int],
    next_law: NextLaw = next_id_law,
) -> ChiSquare:
    """The window's ids behind all prompts at once: their samples are independent."""
    parts = []
    for prompt, outputs in counts.items():
        observed: Counter[tuple[int, ...]] = Counter()
        for emitted, count in outputs.items():
            observed[emitted[slice(*window)]] += count
        law = window_law(_joint(processor, prompt, next_law), *window)
        parts.append(goodness_of_fit(observed, law))
    return total(parts)


@cache
def _joint(
    processor: Processor, prompt: tuple[int, ...], next_law: NextLaw
) -> dict[tuple[int, ...], float]:
    return joint_law(
        TableModel().logits_of,
        prompt,
        processor.params,
        num_tokens=NUM_TOKENS,
        end_token_ids=processor.end_token_ids,
        next_law=next_law,
    )
