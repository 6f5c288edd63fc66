"""Makes a training job of the flags of `specdec train-draft`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from deployments.cli.generate.prompt_file import PromptLine, read_prompt_file
from deployments.cli.train_draft.chat import OPENERS
from deployments.cli.train_draft.options import TrainDraftOptions
from deployments.config.flags import made_of
from deployments.text.chat_messages import checked_messages
from deployments.text.tokenizer import TextModel
from specdec_core.config import Numerics
from specdec_core.errors import InvalidRequestError
from specdec_core.kv_cache.paged import BLOCK_SIZE
from specdec_core.loading.loader import LoadConfig
from specdec_core.training.distillation import DraftJob
from specdec_core.training.draft_network import DraftShape, Initialisation
from specdec_core.training.loss import Loss
from specdec_core.training.synthesis import TextConfig
from specdec_core.training.trainer import TrainConfig


def draft_job(options: TrainDraftOptions) -> DraftJob:
    """Return the job. Raises InvalidRequestError for flags that do not fit together."""
    work, text = options.work or options.output / "training", options.text
    shape, init = options.shape, options.shape.initialise_from
    return DraftJob(
        target_name=_name(options.target),
        output=options.output,
        work=work,
        text_folder=text.text or work / "text",
        shape=made_of(DraftShape, shape, initialise_from=Initialisation(init) if init else None),
        text=_text(options),
        training=made_of(TrainConfig, options.training, loss=Loss(options.training.loss)),
        prompts=tuple(_only_text(text.prompts)) if text.prompts else (),
        excluded=tuple(_every_text(text.exclude)) if text.exclude else (),
        excluded_run=text.exclude_run,
        command=options.command_line(),
    )


def load_config(options: TrainDraftOptions, text: TextModel) -> LoadConfig:
    """Return the configuration with a cache for the target that holds one batch of documents."""
    longest = min(_text(options).max_document_tokens, text.max_model_len)
    blocks = -(-longest // BLOCK_SIZE)
    loading = replace(
        options.loading,
        max_model_len=longest,
        kv_cache_tokens=options.text.batch_size * blocks * BLOCK_SIZE,
        numerics=Numerics.FAST,
    )
    return loading.load_config()


def _text(options: TrainDraftOptions) -> TextConfig:
    return made_of(TextConfig, options.text, openers=OPENERS, seed=options.training.seed)


def _name(target: str) -> str:
    """Return the target's name. For a folder it is the last part, so that the path stays
    private."""
    return Path(target).resolve().name if Path(target).is_dir() else target


def _only_text(path: Path) -> list[str]:
    lines = read_prompt_file(path)
    for line in lines:
        if not line.first_text:
            raise InvalidRequestError(
                f"{path} line {line.line_number}: training prompts need `prompt` or `turns`"
            )
    return [line.first_text for line in lines]


def _every_text(path: Path) -> list[str]:
    return [text for line in read_prompt_file(path) for text in _texts_of(line)]


def _texts_of(line: PromptLine) -> list[str]:
    messages = checked_messages(line.messages) if line.messages else []
    contents = [message["content"] for message in messages]
    return [*(line.turns or []), *([line.prompt] if line.prompt else []), *contents]
