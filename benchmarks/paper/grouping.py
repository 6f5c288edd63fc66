"""Table 4: how often the rows of a target pass have equal lengths. No weights are needed.

Lengths, drafts and acceptance are arranged (token_model), and the algorithm does the rest: its
window, its grouping, its rounds are the ones that serve real models.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from benchmarks.paper.algorithms import scheduler_config
from benchmarks.paper.answer_book import AnswerBook
from benchmarks.paper.decoding import decode
from benchmarks.paper.records import Row
from benchmarks.paper.token_model import VOCAB_SIZE, random_sequences, token_model
from benchmarks.paper.workload import Workload
from deployments.config.flags import flag
from specdec_core import SpecMethod
from specdec_core.engine import AlgorithmName, Engine


class Lengths(StrEnum):
    """Of the prompts."""

    RANDOM = "random"
    EQUAL = "equal"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupingOptions:
    """The paper's sizes by default; its acceptance is not known here, so it is an axis."""

    num_prompts: int = flag(100, "Sequences.", "--prompts")
    max_tokens: int = flag(50, "Most tokens of an answer.")
    num_draft_tokens: int = flag(
        5, "K, the drafted tokens per sequence and round.", "--spec-tokens"
    )
    window: int = flag(50, "W.")
    equal_len: int = 16
    random_lens: tuple[int, int] = (8, 32)
    """Both ends included."""
    sort_by_length: bool = flag(
        True,
        "Shortest prompts first, as in the paper's scripts.",
        "--sort-by-length/--no-sort-by-length",
    )
    seed: int = flag(0, "Of everything that is drawn.")

    @property
    def settings(self) -> dict[str, Any]:
        return asdict(self)


def measure(
    options: GroupingOptions,
    algorithm: AlgorithmName,
    batch_size: int,
    lengths: Lengths,
    probability: float,
) -> Row:
    """Decode once; every drafted token is right with this probability."""
    prompts = random_sequences(prompt_lens(options, lengths), options.seed)
    answers = random_sequences([options.max_tokens] * len(prompts), options.seed + 1)
    engine = _engine(options, algorithm, batch_size, probability, (prompts, answers))
    work = Workload(prompts=tuple(prompts), answer_lens=(options.max_tokens,) * len(prompts))
    decoded = decode(engine, work.requests())
    assert list(decoded.answers) == answers, f"{algorithm} emitted other ids than plain decoding"
    stats = decoded.stats
    return {
        "algorithm": algorithm.value,
        "batch_size": batch_size,
        "lengths": lengths.value,
        "probability": probability,
        "window": max(options.window, batch_size),
        "num_groups": stats.num_groups,
        "num_equal_length_groups": stats.num_equal_length_groups,
        "equal_length_share": stats.num_equal_length_groups / max(stats.num_groups, 1),
        "num_rounds": stats.num_rounds,
        "mean_acceptance_length": stats.mean_acceptance_length,
    }


def prompt_lens(options: GroupingOptions, lengths: Lengths) -> list[int]:
    if lengths is Lengths.EQUAL:
        return [options.equal_len] * options.num_prompts
    rng = random.Random(f"lengths/{options.seed}")
    lens = [rng.randint(*options.random_lens) for _ in range(options.num_prompts)]
    return sorted(lens) if options.sort_by_length else lens


def _engine(
    options: GroupingOptions,
    algorithm: AlgorithmName,
    batch_size: int,
    probability: float,
    recorded: tuple[Sequence[tuple[int, ...]], Sequence[tuple[int, ...]]],
) -> Engine:
    books = [
        AnswerBook(*recorded, probability=p, vocab_size=VOCAB_SIZE, seed=options.seed)
        for p in (1.0, probability)
    ]
    target, draft = (token_model(book) for book in books)
    window = max(options.window, batch_size)
    config = scheduler_config(SpecMethod.DRAFT_MODEL, options.num_draft_tokens, batch_size, window)
    return Engine(target, draft, config=config, algorithm=algorithm)
