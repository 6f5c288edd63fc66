"""The command `specdec eval-draft` and its flags."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from deployments.cli import options as flag


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers in a text such as "1,4" or "1-8"."""
    try:
        return tuple(dict.fromkeys(k for part in text.split(",") for k in _range(part)))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no list of numbers of at least 1") from error


def _range(part: str) -> range:
    first, _, last = part.partition("-")
    numbers = range(int(first), int(last or first) + 1)
    if not numbers or numbers[0] < 1:
        raise ValueError(part)
    return numbers


Draft = Annotated[
    str | None,
    typer.Option(metavar="PATH_OR_ID", help="Draft model; without one prompt lookup drafts."),
]
Plot = Annotated[
    Path | None,
    typer.Option(dir_okay=False, writable=True, help="Speed-up and acceptance over K, as PNG."),
]
SpecTokens = Annotated[
    str, typer.Option(callback=_numbers, help="Drafted tokens per sequence and round (K).")
]


def eval_draft(
    ctx: typer.Context,
    input: flag.Input,
    target: flag.Target = flag.DEMO_MODEL,
    draft: Draft = None,
    json: flag.Json = None,
    plot: Plot = None,
    spec_method: flag.SpecMethodName = None,
    spec_tokens: SpecTokens = "1-8",
    spec_min_confidence: flag.SpecMinConfidence = 0.0,
    batch_size: flag.BatchSize = 1,
    limit: flag.Limit = None,
    sample: flag.Sample = None,
    raw_prompt: flag.RawPrompt = False,
    max_tokens: flag.MaxTokens = 128,
    temperature: flag.Temperature = 0.0,
    seed: flag.Seed = 0,
    dtype: flag.Dtype = "auto",
    device: flag.Device = "auto",
    numerics: flag.Numerics = "auto",
    revision: flag.Revision = None,
    draft_revision: flag.DraftRevision = None,
    chat_template: flag.ChatTemplate = None,
    max_model_len: flag.MaxModelLen = None,
    kv_cache_tokens: flag.KvCacheTokens = None,
) -> None:
    """Measure what a draft is worth for a target: acceptance, cost, speed-up, best K.

    Examples:

    `specdec eval-draft --target smollm2-135m --draft my-draft --input prompts.jsonl --sample 12`

    `specdec eval-draft --input prompts.jsonl --spec-method ngram --json found.json --plot p.png`
    """
    # Otherwise the libraries that load models draw their own progress bars.
    os.environ.setdefault("TQDM_DISABLE", "1")
    from deployments.cli.eval_draft import run as evaluation
    from deployments.cli.eval_draft.options import EvalDraftOptions

    evaluation.run(EvalDraftOptions(**ctx.params))
