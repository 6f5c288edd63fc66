"""The command `specdec train-draft` and its flags."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from deployments.cli import options as flag

Value = TypeVar("Value")


def _list_of(parse: Callable[[str], Value]) -> Callable[[str], tuple[Value, ...]]:
    """Return a callback that turns "0,1" into the values."""

    def callback(text: str) -> tuple[Value, ...]:
        try:
            return tuple(parse(part) for part in text.split(",") if part.strip())
        except ValueError as error:
            raise typer.BadParameter(f"{text!r} is no list of numbers") from error

    return callback


_file = partial(typer.Option, exists=True, dir_okay=False, readable=True)
_folder = partial(typer.Option, file_okay=False)
_text = partial(typer.Option, rich_help_panel="Text")
_text_file = partial(_file, rich_help_panel="Text")
_draft = partial(typer.Option, rich_help_panel="Draft")
_training = partial(typer.Option, rich_help_panel="Training")

Output = Annotated[Path, _folder(help="Folder of the finished draft.")]
Work = Annotated[Path | None, _folder(help="Folder of checkpoints [OUTPUT/training].")]
Compact = Annotated[
    Path | None, _folder(help="Write the draft once more, without what the target has.")
]

TextFolder = Annotated[
    Path | None,
    _text("--text", help="Folder of the training text; drafts of one target may share it."),
]
Prompts = Annotated[
    Path | None, _text_file(help="User turns, JSON lines [the target makes them up].")
]
Exclude = Annotated[
    Path | None, _text_file(help="Prompts whose runs of words must not occur in the text.")
]
ExcludeRun = Annotated[int, _text(min=1, help="Words of such a run; shorter prompts as a whole.")]
Documents = Annotated[int, _text(min=1, help="Documents, before any is dropped.")]
MaxUserTokens = Annotated[int, _text(min=1, help="Longest user turn that is made up.")]
MaxPromptTokens = Annotated[int, _text(min=1, help="Longer prompts are dropped.")]
MaxAnswerTokens = Annotated[int, _text(min=1, help="Longest answer.")]
Temperatures = Annotated[str, _text(callback=_list_of(float), help="Of the answers, in turn.")]
Candidates = Annotated[
    int, _text(min=1, max=20, help="Of the target's likeliest ids, kept per token.")
]
TextBatchSize = Annotated[int, _text(min=1, help="Documents that are written at once.")]

Layers = Annotated[int, _draft(min=1, help="Depth.")]
HiddenSize = Annotated[
    int | None,
    _draft(help="Width [the target's: shares its embeddings and head]; narrower: its own."),
]
Init = Annotated[
    str | None,
    _draft(
        metavar="[layers|embeddings|random]",
        callback=flag.one_of("layers", "embeddings", "random"),
        help="What of the target it begins with [layers; embeddings if narrower].",
    ),
]
FromLayers = Annotated[
    str, _draft(callback=_list_of(int), help="The target's layers to begin with [evenly spread].")
]
DraftVocabSize = Annotated[
    int | None, _draft(min=1, help="Propose only the so many most frequent ids [all].")
]

Loss = Annotated[
    str,
    _training(
        metavar="[kl|hard]",
        callback=flag.one_of("kl", "hard"),
        help="Match the target's distribution, or its choice alone.",
    ),
]
Epochs = Annotated[int, _training(min=1, help="Times that the text is gone through.")]
BatchTokens = Annotated[int, _training(min=1, help="Ids of a step, padding included.")]
LearningRate = Annotated[float, _training(help="The highest; falls along a cosine.")]
Warmup = Annotated[float, _training(help="Share of the steps in which it rises.")]
WeightDecay = Annotated[float, _training(min=0.0, help="AdamW's.")]
ClipNorm = Annotated[float, _training(help="Longest gradient.")]
MixedPrecision = Annotated[
    bool, _training("--mixed-precision", help="bfloat16 arithmetic; weights stay float32.")
]
CheckpointEvery = Annotated[int, _training(min=1, help="Steps between checkpoints.")]
EvaluateEvery = Annotated[int, _training(min=1, help="Steps between held-out measurements.")]
HeldOut = Annotated[int, _training(min=1, help="Documents that are measured on, not trained on.")]
Seed = Annotated[int, _training(min=0, help="Of the text, the weights and the order.")]


def train_draft(
    ctx: typer.Context,
    target: flag.Target,
    output: Output,
    work: Work = None,
    compact: Compact = None,
    text: TextFolder = None,
    prompts: Prompts = None,
    exclude: Exclude = None,
    exclude_run: ExcludeRun = 13,
    documents: Documents = 2048,
    max_user_tokens: MaxUserTokens = 128,
    max_prompt_tokens: MaxPromptTokens = 512,
    max_answer_tokens: MaxAnswerTokens = 256,
    temperatures: Temperatures = "0,1",
    candidates: Candidates = 16,
    text_batch_size: TextBatchSize = 32,
    layers: Layers = 1,
    hidden_size: HiddenSize = None,
    init: Init = None,
    from_layers: FromLayers = "",
    draft_vocab_size: DraftVocabSize = None,
    loss: Loss = "kl",
    epochs: Epochs = 4,
    batch_tokens: BatchTokens = 4096,
    learning_rate: LearningRate = 2e-3,
    warmup: Warmup = 0.05,
    weight_decay: WeightDecay = 0.0,
    clip_norm: ClipNorm = 1.0,
    mixed_precision: MixedPrecision = False,
    checkpoint_every: CheckpointEvery = 200,
    evaluate_every: EvaluateEvery = 200,
    held_out: HeldOut = 32,
    seed: Seed = 0,
    dtype: flag.Dtype = "auto",
    device: flag.Device = "auto",
    revision: flag.Revision = None,
    chat_template: flag.ChatTemplate = None,
) -> None:
    """Make a draft model for a target, from text that the target writes itself.

    The same command again goes on where it was interrupted.

    Examples:

    `specdec train-draft --target smollm2-135m --output my-draft --draft-vocab-size 8192`

    `specdec train-draft --target Qwen/Qwen3-8B --output draft --device cuda --mixed-precision`
    """
    # Otherwise the libraries that load and save models draw their own progress bars.
    os.environ.setdefault("TQDM_DISABLE", "1")
    from deployments.cli.train_draft import run as training
    from deployments.cli.train_draft.options import TrainDraftOptions
    from specdec_core.training.draft_network import Initialisation
    from specdec_core.training.loss import Loss as LossKind

    params = dict(ctx.params)
    params["loss"] = LossKind(loss)
    params["init"] = None if init is None else Initialisation(init)
    training.run(TrainDraftOptions(**params), command_line(ctx))


def command_line(ctx: typer.Context) -> str:
    """Return the command line for a repeated run: flags that differ from their defaults, and paths
    by their last part."""
    words = ["specdec", str(ctx.info_name)]
    for param in ctx.command.params:
        value: Any = ctx.params.get(param.name or "")
        if value not in (None, (), False) and not _is_default(param.default, value):
            words += [max(param.opts, key=len), *_words_of(value)]
    return shlex.join(words)


def _is_default(default: Any, value: Any) -> bool:
    return bool(value == default) or ",".join(map(_short, _as_tuple(value))) == default


def _words_of(value: Any) -> list[str]:
    return [] if value is True else [",".join(map(_short, _as_tuple(value)))]


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _short(value: Any) -> str:
    if isinstance(value, Path) or (isinstance(value, str) and Path(value).is_dir()):
        return Path(value).name
    return f"{value:g}" if isinstance(value, float) else str(value)
