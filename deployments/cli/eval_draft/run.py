"""`specdec eval-draft`: measure the gain from a draft or prompt lookup on a file of prompts.

Decodes the prompts once without speculation and once with every K. The runs show the actual gain.
The expected gain comes from the passes that were timed when the models were loaded.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

from rich.console import Console

from deployments.cli.eval_draft.options import EvalDraftOptions
from deployments.cli.eval_draft.plot import plot
from deployments.cli.eval_draft.report import (
    Point,
    best_point,
    categories_table,
    pass_costs,
    points_table,
    positions_line,
    record,
    verdict,
)
from deployments.cli.generate.prompt_file import PromptLine
from deployments.cli.generate.prompt_text import line_request
from deployments.cli.plotting import check_can_plot
from deployments.cli.progress import cell_progress
from deployments.cli.timed_run import decode
from deployments.config.flags import values_of
from specdec_core.engine import AlgorithmName
from specdec_core.loading.loader import LoadedPair
from specdec_core.request import Request


def run(options: EvalDraftOptions) -> None:
    """Evaluate the draft, print tables and a verdict, and write the requested files."""
    if options.plot is not None:
        check_can_plot()
    lines = options.prompts.read()
    text = options.loading.load_text(options.target)
    is_raw = options.prompts.raw_prompt
    requests = [line_request(text, line, options.sampling, is_raw=is_raw) for line in lines]
    models = options.loading.load_models(options.target, options.draft)
    points = _evaluate(options, models, requests, lines)
    settings = {**values_of(options), "fingerprint": models.target.fingerprint}
    found = json.loads(json.dumps(record(points, settings), default=str))
    _show(points)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    if options.plot is not None:
        plot(found, options.plot)


def _evaluate(
    options: EvalDraftOptions,
    models: LoadedPair,
    requests: Sequence[Request],
    lines: Sequence[PromptLine],
) -> list[Point]:
    target = models.target.model
    draft = models.draft.model if models.draft else None
    costs = pass_costs(target, draft, options.batch_size, options.spec_tokens)
    categories = {str(line.line_number): line.category for line in lines}
    with cell_progress(len(requests) * (1 + len(options.spec_tokens))) as report:
        plain = decode(
            target,
            None,
            options.scheduler_config(0, len(requests)),
            requests,
            partial(report, "plain decoding"),
            AlgorithmName.AUTOREGRESSIVE,
        )
        runs = {
            k: decode(
                target,
                draft,
                options.scheduler_config(k, len(requests)),
                requests,
                partial(report, f"{options.method}, K = {k}"),
            )
            for k in options.spec_tokens
        }
    return [
        Point(num_draft_tokens=k, run=run, plain=plain, costs=costs, categories=categories)
        for k, run in runs.items()
    ]


def _show(points: Sequence[Point]) -> None:
    console, best = Console(), best_point(points)
    console.print(points_table(points))
    console.print(categories_table(best))
    console.print(positions_line(points[-1]), highlight=False)
    console.print(verdict(points), highlight=False, soft_wrap=True)
