"""The flags of `specdec train-draft`."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from deployments.config.flags import INPUT_FILE, REQUIRED, declarations, flag, section, values_of
from deployments.config.loading import LoadOptions, target_flag


def _numbers(kind: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    """Return a parser of texts such as "0,1"."""

    def parsed(text: str) -> tuple[Any, ...]:
        try:
            return tuple(kind(part) for part in text.split(",") if part.strip())
        except ValueError as error:
            raise ValueError(f"{text!r} is not a list of numbers") from error

    return parsed


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions:
    """The text that the draft is trained on."""

    PANEL: ClassVar[str] = "Text"

    text: Path | None = flag(
        None,
        "Folder of the training text. Drafts of one target may share it. Default: WORK/text.",
        "--text",
    )
    prompts: Path | None = flag(
        None, "File of user turns, as JSON lines. Default: the target writes them.", **INPUT_FILE
    )
    exclude: Path | None = flag(
        None,
        "File of prompts. Texts that share a run of words with a prompt are not trained on.",
        **INPUT_FILE,
    )
    exclude_run: int = flag(
        13, "Number of words in a run for --exclude. Shorter prompts count as a whole.", min=1
    )
    num_documents: int = flag(
        2048, "Number of documents, before any is dropped.", "--documents", min=1
    )
    max_user_tokens: int = flag(128, "Maximum tokens of a user turn that the target writes.", min=1)
    max_prompt_tokens: int = flag(
        512, "Maximum tokens of a prompt. Longer prompts are dropped.", min=1
    )
    max_answer_tokens: int = flag(256, "Maximum tokens of an answer.", min=1)
    temperatures: tuple[float, ...] = flag(
        "0,1", "Sampling temperatures of the answers, in turn.", parse=_numbers(float)
    )
    num_candidates: int = flag(
        16,
        "Number of the target's most probable token IDs that are kept for each token.",
        "--candidates",
        min=1,
        max=20,
    )
    batch_size: int = flag(
        32, "Number of documents that are written in one batch.", "--text-batch-size", min=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeOptions:
    """The network of the draft."""

    PANEL: ClassVar[str] = "Draft"

    num_layers: int = flag(1, "Number of layers.", "--layers", min=1)
    hidden_size: int | None = flag(
        None,
        "Hidden size. Default: the target's, with its embeddings and head. A narrower "
        "draft has its own.",
    )
    initialise_from: str | None = flag(
        None,
        "Weights of the target that initialize the draft. Default: `layers`, or "
        "`embeddings` for a narrower draft.",
        "--init",
        choices=("layers", "embeddings", "random"),
    )
    from_layers: tuple[int, ...] = flag(
        "",
        "Layers of the target that initialize the draft. Default: evenly spread.",
        parse=_numbers(int),
    )
    vocab_size: int | None = flag(
        None,
        "Propose only the N most frequent token IDs. Default: all.",
        "--draft-vocab-size",
        min=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """The training itself."""

    PANEL: ClassVar[str] = "Training"

    loss: str = flag(
        "kl",
        "`kl` matches the target's distribution, `hard` only its choice.",
        choices=("kl", "hard"),
    )
    num_epochs: int = flag(4, "Number of passes over the text.", "--epochs", min=1)
    batch_tokens: int = flag(4096, "Maximum token IDs of a training step, padding included.", min=1)
    learning_rate: float = flag(2e-3, "Maximum learning rate. It falls along a cosine.")
    warmup_fraction: float = flag(
        0.05, "Share of the steps in which the learning rate rises.", "--warmup"
    )
    weight_decay: float = flag(0.0, "Weight decay of AdamW.", min=0.0)
    clip_norm: float = flag(1.0, "Maximum norm of the gradient.")
    mixed_precision: bool = flag(False, "Compute in bfloat16. Weights stay float32.")
    checkpoint_every: int = flag(200, "Steps between checkpoints.", min=1)
    evaluate_every: int = flag(200, "Steps between held-out measurements.", min=1)
    num_held_out: int = flag(
        32,
        "Number of held-out documents, which are measured and not trained on.",
        "--held-out",
        min=1,
    )
    seed: int = flag(0, "Seed of the text, the weights and the order.", min=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainDraftOptions:
    """Flags of the command."""

    target: str = target_flag(REQUIRED)
    output: Path = flag(REQUIRED, "Folder of the finished draft.", file_okay=False)
    work: Path | None = flag(
        None, "Folder of checkpoints. Default: OUTPUT/training.", file_okay=False
    )
    compact: Path | None = flag(
        None,
        "Folder for a second copy of the draft, without the weights that the target has.",
        file_okay=False,
    )
    text: TextOptions = section(TextOptions)
    shape: ShapeOptions = section(ShapeOptions)
    training: TrainingOptions = section(TrainingOptions)
    loading: LoadOptions = section(LoadOptions, ("dtype", "device", "revision", "chat_template"))

    def command_line(self) -> str:
        """Return the command for a repeated run: flags that differ from their defaults, and paths
        by their last part."""
        words, values = ["specdec", "train-draft"], values_of(self)
        for declared in declarations(type(self)):
            value = values[declared.name]
            if value not in (None, (), False, declared.default):
                words += declared.reading.names or [f"--{declared.name.replace('_', '-')}"]
                words += [] if value is True else [_word(value)]
        return shlex.join(words)


def _word(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_word, value))
    if isinstance(value, Path) or (isinstance(value, str) and Path(value).is_dir()):
        return Path(value).name
    return f"{value:g}" if isinstance(value, float) else str(value)
