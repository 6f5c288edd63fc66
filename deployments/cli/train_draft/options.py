"""The flags of `specdec train-draft` as one record, and the job from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deployments.cli.generate.prompt_file import PromptLine, read_prompt_file
from deployments.cli.train_draft.chat import OPENERS
from deployments.text.chat_messages import checked_messages
from deployments.text.tokenizer import TextModel
from specdec_core.config import DType, Numerics
from specdec_core.errors import InvalidRequestError
from specdec_core.kv_cache.paged import BLOCK_SIZE
from specdec_core.loading.loader import LoadConfig
from specdec_core.training.distillation import DraftJob
from specdec_core.training.draft_network import DraftShape, Initialisation
from specdec_core.training.loss import Loss
from specdec_core.training.synthesis import TextConfig
from specdec_core.training.trainer import TrainConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainDraftOptions:
    """The command's flags; command.py explains each."""

    target: str
    output: Path
    work: Path | None
    text: Path | None
    compact: Path | None
    prompts: Path | None
    exclude: Path | None
    exclude_run: int
    documents: int
    max_user_tokens: int
    max_prompt_tokens: int
    max_answer_tokens: int
    temperatures: tuple[float, ...]
    candidates: int
    text_batch_size: int
    layers: int
    hidden_size: int | None
    init: Initialisation | None
    from_layers: tuple[int, ...]
    draft_vocab_size: int | None
    loss: Loss
    epochs: int
    batch_tokens: int
    learning_rate: float
    warmup: float
    weight_decay: float
    clip_norm: float
    mixed_precision: bool
    checkpoint_every: int
    evaluate_every: int
    held_out: int
    seed: int
    dtype: str
    device: str
    revision: str | None
    chat_template: Path | None

    def __post_init__(self) -> None:
        """Report mistakes before a model is loaded."""
        self.job(command="")

    def job(self, command: str) -> DraftJob:
        work = self.work or self.output / "training"
        return DraftJob(
            target_name=_name(self.target),
            output=self.output,
            work=work,
            text_folder=self.text or work / "text",
            shape=self._shape(),
            text=self._text(),
            training=self._training(),
            prompts=tuple(_only_text(self.prompts)) if self.prompts else (),
            excluded=tuple(_every_text(self.exclude)) if self.exclude else (),
            excluded_run=self.exclude_run,
            command=command,
        )

    def load_config(self, text: TextModel) -> LoadConfig:
        """Return the configuration with a cache for the target that holds one batch of
        documents."""
        longest = min(self._text().max_document_tokens, text.max_model_len)
        blocks = -(-longest // BLOCK_SIZE)
        return LoadConfig(
            dtype=DType(self.dtype),
            device=self.device,
            revision=self.revision,
            max_model_len=longest,
            kv_cache_tokens=self.text_batch_size * blocks * BLOCK_SIZE,
            numerics=Numerics.FAST,
        )

    def _shape(self) -> DraftShape:
        return DraftShape(
            num_layers=self.layers,
            hidden_size=self.hidden_size,
            initialise_from=self.init,
            from_layers=self.from_layers,
            vocab_size=self.draft_vocab_size,
        )

    def _text(self) -> TextConfig:
        return TextConfig(
            num_documents=self.documents,
            max_user_tokens=self.max_user_tokens,
            max_prompt_tokens=self.max_prompt_tokens,
            max_answer_tokens=self.max_answer_tokens,
            temperatures=self.temperatures,
            openers=OPENERS,
            num_candidates=self.candidates,
            batch_size=self.text_batch_size,
            seed=self.seed,
        )

    def _training(self) -> TrainConfig:
        return TrainConfig(
            num_epochs=self.epochs,
            batch_tokens=self.batch_tokens,
            learning_rate=self.learning_rate,
            warmup_fraction=self.warmup,
            weight_decay=self.weight_decay,
            clip_norm=self.clip_norm,
            loss=self.loss,
            mixed_precision=self.mixed_precision,
            checkpoint_every=self.checkpoint_every,
            evaluate_every=self.evaluate_every,
            num_held_out=self.held_out,
            seed=self.seed,
        )


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
