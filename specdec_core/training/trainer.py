"""The training of a draft: steps, schedule, checkpoints, held-out acceptance.

Nothing here draws a random number. The seed decides the initial weights, and seed and step decide
the order of documents. So parameters, optimiser and step are the whole state. A run that continues
from a checkpoint ends with the very weights of an uninterrupted run.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from specdec_core.errors import InvalidRequestError
from specdec_core.training.acceptance import REPORTED_K, HeldOutAcceptance, acceptance_length
from specdec_core.training.batches import Batch, collate, plan_batches
from specdec_core.training.documents import Document
from specdec_core.training.loss import Loss, draft_loss, overlap
from specdec_core.training.settings import write_atomically
from specdec_core.training.trainable_draft import TrainableDraft

_BETAS = (0.9, 0.95)
_AVERAGED_STEPS = 50
"""Number of steps whose mean loss is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """Settings of a draft's training."""

    num_epochs: int = 4
    batch_tokens: int = 4096
    """Maximum IDs of a step, padding included."""
    learning_rate: float = 2e-3
    """Maximum learning rate, after warm-up. It then falls to 0 along a cosine."""
    warmup_fraction: float = 0.05
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    loss: Loss = Loss.KL
    mixed_precision: bool = False
    """Whether to use bfloat16 arithmetic where it is safe. The weights that are trained stay
    float32."""
    checkpoint_every: int = 200
    """Steps between two checkpoints."""
    evaluate_every: int = 200
    num_held_out: int = 32
    """Number of documents that are measured on and never trained on."""
    seed: int = 0

    def __post_init__(self) -> None:
        sizes = ("num_epochs", "batch_tokens", "checkpoint_every", "evaluate_every", "num_held_out")
        for name in sizes:
            if getattr(self, name) < 1:
                raise InvalidRequestError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("learning_rate", "clip_norm"):
            if getattr(self, name) <= 0:
                raise InvalidRequestError(f"{name} must be positive, got {getattr(self, name)}")
        if not 0.0 <= self.warmup_fraction < 1.0:
            raise InvalidRequestError(
                f"warmup_fraction must be at least 0 and below 1, got {self.warmup_fraction}"
            )


@dataclass(frozen=True, slots=True)
class Progress:
    """State of a training."""

    step: int
    num_steps: int
    loss: float
    """Mean loss of the last steps."""
    held_out: HeldOutAcceptance | None
    """Acceptance as measured last."""


Report = Callable[[Progress], None]


class Trainer:
    """Trains one draft on one text. Changes the network in place."""

    def __init__(
        self,
        draft: TrainableDraft,
        documents: Sequence[Document],
        held_out: Sequence[Document],
        config: TrainConfig,
        checkpoint: Path,
    ) -> None:
        self.losses: list[float] = []
        """Loss of every step."""
        self._draft = draft
        self._documents = documents
        self._held_out = held_out
        self._config = config
        self._checkpoint = checkpoint
        lengths = [len(document.ids) for document in documents]
        self._plan = plan_batches(lengths, config.batch_tokens, config.num_epochs, config.seed)
        self._parameters = draft.trained_parameters()
        self._optimizer = _optimizer(list(self._parameters.values()), config)

    @property
    def num_steps(self) -> int:
        return len(self._plan)

    def run(self, report: Report) -> Progress:
        """Train to the end, from the checkpoint if there is one."""
        self._restore()
        progress = self._progress(measure=True)
        report(progress)
        while progress.step < self.num_steps:
            self._step(progress.step)
            done = progress.step + 1
            is_last = done == self.num_steps
            measure = is_last or done % self._config.evaluate_every == 0
            progress = self._progress(measure, progress.held_out)
            if is_last or done % self._config.checkpoint_every == 0:
                self._save()
            report(progress)
        return progress

    def _step(self, step: int) -> None:
        config = self._config
        batch = collate([self._documents[i] for i in self._plan[step]], self._draft.device)
        factor = learning_rate_factor(step, self.num_steps, config.warmup_fraction)
        for group in self._optimizer.param_groups:
            group["lr"] = config.learning_rate * factor
        with self._arithmetic():
            logits_NR = self._draft.logits(batch)
        loss = draft_loss(config.loss, logits_NR, self._draft.teacher(batch))
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._parameters.values(), config.clip_norm)
        self._optimizer.step()
        self._optimizer.zero_grad()
        self.losses.append(loss.item())

    def _arithmetic(self) -> torch.autocast:
        device_type = self._draft.device.type
        return torch.autocast(device_type, torch.bfloat16, enabled=self._config.mixed_precision)

    def _progress(self, measure: bool, known: HeldOutAcceptance | None = None) -> Progress:
        recent = self.losses[-_AVERAGED_STEPS:]
        loss = sum(recent) / len(recent) if recent else math.nan
        return Progress(
            len(self.losses), self.num_steps, loss, self.measure() if measure else known
        )

    @torch.inference_mode()
    def measure(self) -> HeldOutAcceptance:
        """Return the acceptance on the held-out documents."""
        agrees_N: list[Tensor] = []
        overlap_N: list[Tensor] = []
        for batch in self._held_out_batches():
            with self._arithmetic():
                logits_NR = self._draft.logits(batch)
            teacher = self._draft.teacher(batch)
            agrees = logits_NR.argmax(dim=-1) == teacher.columns[:, 0]
            agrees_N.append((agrees & teacher.is_first_listed).cpu())
            overlap_N.append(overlap(logits_NR, teacher).cpu())
        agrees = torch.cat(agrees_N)
        runs = torch.split(agrees, [document.num_answer_tokens for document in self._held_out])
        return HeldOutAcceptance(
            greedy=agrees.float().mean().item(),
            overlap=torch.cat(overlap_N).mean().item(),
            length=acceptance_length([run.tolist() for run in runs], REPORTED_K),
        )

    def _held_out_batches(self) -> Iterator[Batch]:
        return (collate([document], self._draft.device) for document in self._held_out)

    def _save(self) -> None:
        state = {
            "losses": self.losses,
            "parameters": {name: p.detach() for name, p in self._parameters.items()},
            "optimizer": self._optimizer.state_dict(),
        }
        content = io.BytesIO()
        torch.save(state, content)
        write_atomically(self._checkpoint, content.getvalue())

    def _restore(self) -> None:
        if not self._checkpoint.is_file():
            return
        state = torch.load(self._checkpoint, map_location=self._draft.device, weights_only=True)
        self.losses = state["losses"]
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(state["parameters"][name])
        self._optimizer.load_state_dict(state["optimizer"])


def learning_rate_factor(step: int, num_steps: int, warmup_fraction: float) -> float:
    """Return a factor that rises in a line, then falls along a cosine to just above 0."""
    num_warmup = int(num_steps * warmup_fraction)
    if step < num_warmup:
        return (step + 1) / num_warmup
    share = (step - num_warmup) / max(num_steps - num_warmup, 1)
    return 0.5 * (1.0 + math.cos(math.pi * share))


def _optimizer(parameters: Sequence[Tensor], config: TrainConfig) -> torch.optim.AdamW:
    """Make the optimiser. Norms are not decayed."""
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=_BETAS)
