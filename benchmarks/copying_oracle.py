"""The best fixed K on text to copy, at measured prices of passes, and how near the policy comes.

The answers to `--dataset-name copying` are decoded once and kept. The pool and prompt lookup then
run over them in virtual time, as in benchmarks/priced_rounds: with every fixed K, and with the
policy as it ships. Times count from the first token of an answer.

    python -m benchmarks.copying_oracle --answers answers.json \
        --prices benchmarks/results/pass_prices_amx.json
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from itertools import zip_longest
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.harness.commands import write_json
from benchmarks.harness.machine import commit
from benchmarks.priced_passes import Bill, Prices, read_pass_table
from benchmarks.priced_rounds import OFF, SHIPPED, Question, Turn, named, recorded_target, run
from benchmarks.synthetic import record
from deployments.cli.bench.prompts import COPYING_FILE
from deployments.cli.generate.prompt_file import PromptLine, read_prompt_file
from deployments.cli.generate.prompt_text import encode_line
from deployments.cli.progress import cell_progress
from deployments.demo.models import resolve_model
from deployments.text.tokenizer import load_text_model
from specdec_core import SamplingParams, SpecMethod, SpeculationConfig
from specdec_core.config import KPolicyName, NgramConfig
from specdec_core.loading.loader import load_model

WHOLE_SET = "all"
_TABLE_WIDTH = 120
_LOOKUPS = (NgramConfig(), NgramConfig.suiting(KPolicyName.GOODPUT))
"""Lookups of a fixed K: as it ships, and as the policy's ships. The better one counts."""


def decoded(
    model: str, lines: Sequence[PromptLine], cache: Path, max_tokens: int
) -> dict[str, list[Question]]:
    """Return plain greedy answers by category, from `cache` if it has them."""
    folder = str(resolve_model(model))
    text = load_text_model(folder)
    prompts = [encode_line(text, line, is_raw=False) for line in lines]
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens)
    target = load_model(folder).model
    found = record(target, prompts, params, cache, model, text.end_token_ids)
    questions: dict[str, list[Question]] = {}
    for line, prompt, answer in zip(lines, found.prompts, found.answers, strict=True):
        questions.setdefault(line.category, []).append(numbered(prompt, answer))
    return questions


def numbered(prompt: Sequence[int], answer: Sequence[int]) -> Question:
    """Number the IDs of a question as they come, so that logits are short."""
    numbers: dict[int, int] = {}

    def own(ids: Sequence[int]) -> tuple[int, ...]:
        return tuple(numbers.setdefault(i, len(numbers)) for i in ids)

    return Question(own(prompt), own(answer))


def measure(
    questions: Sequence[Question],
    prices: Prices,
    streams: int,
    fixed_ks: Iterable[int],
    policy: SpeculationConfig,
    noise: float,
    turns: int,
) -> dict[str, Any]:
    """Return the gains of every fixed K and of the policy over no speculation."""
    asked = named(questions)
    vocab_size = 1 + max(max(*one.prompt, *one.answer) for one in asked)

    def turn(speculation: SpeculationConfig, seed: int = 0) -> Turn:
        bill = Bill(prices, noise, random.Random(seed))
        target = recorded_target(asked, vocab_size, bill)
        return run(asked, target, bill, streams=streams, temperature=0.0, speculation=speculation)

    off = turn(OFF)
    gains = {0: 1.0}
    for k in sorted(set(fixed_ks) - {0}):
        found = (turn(_fixed(k, lookup)) for lookup in _LOOKUPS)
        gains[k] = off.decoding_s / min(one.decoding_s for one in found)
    best = max(gains, key=lambda k: gains[k])
    on = [turn(policy, seed) for seed in range(turns)]
    policy_gain = off.decoding_s / median(one.decoding_s for one in on)
    return {
        "streams": streams,
        "questions": len(asked),
        "tokens": off.tokens,
        "fixed": {str(k): gain for k, gain in gains.items()},
        "best_fixed_k": best,
        "oracle": gains[best],
        "policy": policy_gain,
        "policy_over_oracle": policy_gain / gains[best],
        "drafted_share": median(one.num_drafted / one.tokens for one in on),
        "accepted_share": median(one.num_accepted / one.tokens for one in on),
    }


def _fixed(k: int, lookup: NgramConfig) -> SpeculationConfig:
    return SpeculationConfig(
        method=SpecMethod.NGRAM, num_draft_tokens=k, k_policy=KPolicyName.FIXED, ngram=lookup
    )


def shipped(num_draft_tokens: int | None) -> SpeculationConfig:
    """Return the policy as it ships, or with another maximum K."""
    if num_draft_tokens is None:
        return SHIPPED
    return replace(SHIPPED, num_draft_tokens=num_draft_tokens)


def main(
    answers: Annotated[Path, typer.Option(help="File that keeps the answers for the next run.")],
    prices: Annotated[
        list[Path],
        typer.Option(
            help="Result of benchmarks/pass_prices. A later file adds sizes to the first one."
        ),
    ],
    model: Annotated[str, typer.Option(help="Model that answers: folder or name.")] = (
        "smollm2-135m"
    ),
    input: Annotated[
        Path, typer.Option(help="Chats as JSON lines.", show_default="the copying set")
    ] = COPYING_FILE,
    max_tokens: Annotated[int, typer.Option(help="Maximum tokens of an answer.")] = 192,
    streams: Annotated[str, typer.Option(help="Separated by commas.")] = "1,8",
    fixed_ks: Annotated[str, typer.Option(help="Separated by commas.")] = "0,1,2,4,8,15,16",
    spec_tokens: Annotated[
        int | None, typer.Option(help="Maximum K of the policy.", show_default="as shipped")
    ] = None,
    categories: Annotated[
        str, typer.Option(help="Separated by commas; `all` is the whole set.")
    ] = "all,edit,second_turn,asked_again,extract",
    fixed_ms: Annotated[
        float, typer.Option(help="Milliseconds of a round besides its pass.")
    ] = 0.0,
    noise: Annotated[
        float, typer.Option(help="Noise of the times that the policy sees, as a logarithm.")
    ] = 0.05,
    turns: Annotated[int, typer.Option(help="Runs of the policy, each with its own noise.")] = 3,
    threads: int = 2,
    output: Annotated[Path | None, typer.Option(help="JSON file.")] = None,
) -> None:
    """Print the best fixed K's gain over no speculation, and the policy's share of it."""
    torch.set_num_threads(threads)
    questions = decoded(model, read_prompt_file(input), answers, max_tokens)
    torch.set_num_threads(1)
    questions[WHOLE_SET] = [one for own in zip_longest(*questions.values()) for one in own if one]
    table = read_pass_table(prices, fixed_ms / 1e3)
    ks, policy = tuple(map(int, fixed_ks.split(","))), shipped(spec_tokens)
    for name in set(categories.split(",")) - set(questions):
        raise typer.BadParameter(f"{name!r} is none of {', '.join(questions)}: --categories")
    shapes = [(name, int(count)) for name in categories.split(",") for count in streams.split(",")]
    cells = []
    with cell_progress(len(shapes)) as tell:
        for name, count in shapes:
            found = measure(questions[name], table, count, ks, policy, noise, turns)
            cells.append({"category": name, **found})
            tell(f"{name}, {count} streams", 1)
    Console(width=_TABLE_WIDTH).print(oracle_table(cells))
    result: dict[str, Any] = {"commit": commit(), "model": model, "prices": prices}
    result |= {"fixed_ms": fixed_ms, "max_tokens": max_tokens, "noise": noise}
    write_json({**result, "policy": asdict(policy), "cells": cells}, output)


def oracle_table(cells: Sequence[dict[str, Any]]) -> Table:
    """Return a line for each cell."""
    ks = list(cells[0]["fixed"])
    columns = ("category", "streams", *(f"K={k}" for k in ks), "best K", "policy", "/ best")
    table = Table(*columns, title="Decoding speed over no speculation", pad_edge=False)
    for cell in cells:
        table.add_row(
            cell["category"],
            str(cell["streams"]),
            *(f"{cell['fixed'][k]:.2f}" for k in ks),
            str(cell["best_fixed_k"]),
            f"{cell['policy']:.2f}",
            f"{cell['policy_over_oracle']:.3f}",
        )
    return table


if __name__ == "__main__":
    typer.run(main)
