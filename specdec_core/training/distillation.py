"""The job that makes a draft for a target, from the first word of its text to the finished folder.

Every part can be interrupted and continues at its last state: text by chunks, training by
checkpoints.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torch import nn
from transformers import LlamaForCausalLM

from specdec_core.errors import InvalidRequestError
from specdec_core.loading.loader import LoadedModel
from specdec_core.training.documents import Document, most_frequent_ids
from specdec_core.training.draft_folder import save_draft
from specdec_core.training.draft_network import DraftShape, build_draft
from specdec_core.training.model_card import CardFacts, model_card
from specdec_core.training.overlap import DEFAULT_RUN, OverlapFilter
from specdec_core.training.settings import claim_folder
from specdec_core.training.synthesis import Chat, Text, TextConfig, Writer
from specdec_core.training.target_files import TargetFiles
from specdec_core.training.trainable_draft import TrainableDraft
from specdec_core.training.trainer import Progress, TrainConfig, Trainer

_CHECKPOINT = "checkpoint.pt"
_TEXT_FORMAT = 2
"""Version of the text's format. Version 1 had no user turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftJob:
    """Settings of one draft to be made."""

    target_name: str
    """Name of the target for people."""
    output: Path
    """Folder of the finished draft."""
    work: Path
    """Folder of the checkpoints."""
    text_folder: Path
    """Folder of the training text, which several drafts of one target may share."""
    shape: DraftShape = field(default_factory=DraftShape)
    text: TextConfig = field(default_factory=TextConfig)
    training: TrainConfig = field(default_factory=TrainConfig)
    prompts: tuple[str, ...] = ()
    """User turns. If empty, the target makes them up."""
    excluded: tuple[str, ...] = ()
    """Texts that the training text must share no run of words with."""
    excluded_run: int = DEFAULT_RUN
    command: str = ""
    """Command line that the model card shows."""


class Report(Protocol):
    """Receiver of the job's progress."""

    def text(self, done: int, total: int) -> None: ...

    def training(self, progress: Progress) -> None: ...


def make_draft(
    job: DraftJob, target: LoadedModel, files: TargetFiles, chat: Chat, report: Report
) -> Progress:
    """Write the text, train the draft and save its folder. `files` are those of `target`.

    Raises InvalidRequestError if a folder holds work with other settings, or if the text is too
    little. Raises ModelNotSupportedError if no draft can be made from such a target.
    """
    started = time.perf_counter()
    network = build_draft(files, job.shape, job.training.seed)
    claim_folder(job.text_folder, _text_settings(job, target))
    claim_folder(job.work, _settings(job, target))
    excluded = OverlapFilter(job.excluded, job.excluded_run)
    writer = Writer(target.model, target.end_token_ids, chat, job.text, excluded, job.prompts)
    text = writer.write(job.text_folder, report.text)
    vocab_ids = _vocab_ids(job, text, target, files)
    nn.Module.to(network, target.model.device)
    trainer = _trainer(job, text, TrainableDraft(network, vocab_ids))
    result = trainer.run(report.training)
    facts = _facts(job, target, text, result, network, time.perf_counter() - started)
    save_draft(network, files, vocab_ids, model_card(facts), job.output)
    return result


def _vocab_ids(
    job: DraftJob, text: Text, target: LoadedModel, files: TargetFiles
) -> tuple[int, ...] | None:
    size = job.shape.vocab_size
    if size is None:
        return None
    limit = target.model.vocab_size
    if size > limit:
        raise InvalidRequestError(f"vocab_size must be at most the target's {limit}, got {size}")
    assert files.config.vocab_size >= limit
    return most_frequent_ids(text.documents, size, limit, target.end_token_ids)


def _trainer(job: DraftJob, text: Text, draft: TrainableDraft) -> Trainer:
    held_out, documents = split_off(text.documents, job.training.num_held_out, len(job.prompts))
    held_indices = {document.index for document in held_out}
    turns = [turn for turn in text.turns if turn.index not in held_indices]
    if not held_out or not documents:
        raise InvalidRequestError(
            f"{len(text.documents)} documents are too few to hold out "
            f"{job.training.num_held_out} of them: ask for more documents"
        )
    return Trainer(draft, documents + turns, held_out, job.training, job.work / _CHECKPOINT)


def split_off(
    documents: Sequence[Document], num_held_out: int, num_prompts: int
) -> tuple[list[Document], list[Document]]:
    """Return held-out documents and the others. No prompt is in both, although given prompts
    repeat."""
    period = num_prompts or 1 << 62
    residues = sorted({document.index % period for document in documents})[:num_held_out]
    held_indices = set(residues)
    held_out = [d for d in documents if d.index % period in held_indices and d.index < period]
    return held_out, [d for d in documents if d.index % period not in held_indices]


def _text_settings(job: DraftJob, target: LoadedModel) -> dict[str, Any]:
    """Return all settings that the text depends on. A longer text begins with the shorter one."""
    settings = {**asdict(job.text), "target_digest": target.digest, "dtype": target.model.dtype}
    del settings["num_documents"]
    return {
        **settings,
        "format": _TEXT_FORMAT,
        "prompts_sha256": _sha256_of(job.prompts),
        "excluded_sha256": _sha256_of(job.excluded),
        "num_excluded_texts": len(job.excluded),
        "excluded_run": job.excluded_run,
    }


def _settings(job: DraftJob, target: LoadedModel) -> dict[str, Any]:
    """Return all settings that the draft depends on."""
    return {
        "target": job.target_name,
        "text": {**_text_settings(job, target), "num_documents": job.text.num_documents},
        "shape": asdict(job.shape),
        "training": asdict(job.training),
    }


def _sha256_of(texts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def _facts(
    job: DraftJob,
    target: LoadedModel,
    text: Text,
    result: Progress,
    network: LlamaForCausalLM,
    seconds: float,
) -> CardFacts:
    assert result.held_out is not None, "a finished training has been measured"
    parameters = list(network.parameters())
    return CardFacts(
        target_name=job.target_name,
        command=job.command,
        settings=_settings(job, target),
        held_out=result.held_out,
        num_held_out=job.training.num_held_out,
        num_documents=len(text.documents),
        num_tokens=sum(len(document.ids) for document in text.documents),
        num_turn_tokens=sum(turn.num_answer_tokens for turn in text.turns),
        num_answer_tokens=sum(document.num_answer_tokens for document in text.documents),
        num_excluded=text.num_excluded,
        num_steps=result.num_steps,
        loss=result.loss,
        seconds=seconds,
        num_parameters=sum(p.numel() for p in parameters),
        num_trained_parameters=sum(p.numel() for p in parameters if p.requires_grad),
        num_proposed_ids=job.shape.vocab_size,
        vocab_size=target.model.vocab_size,
        device=str(target.model.device),
    )
