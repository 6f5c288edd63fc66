"""Training repeats bit for bit, goes on bit for bit, and makes a draft agree more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from specdec_core.errors import InvalidRequestError
from specdec_core.training.draft_network import DraftShape
from specdec_core.training.loss import Loss
from specdec_core.training.target_files import TargetFiles
from specdec_core.training.trainer import (
    Progress,
    TrainConfig,
    Trainer,
    learning_rate_factor,
)
from tests.training.texts import new_draft, random_documents, save_target

CONFIG = TrainConfig(
    num_epochs=2, batch_tokens=64, checkpoint_every=3, evaluate_every=4, num_held_out=4
)
DOCUMENTS = random_documents(40)


class KilledError(Exception):
    pass


@pytest.fixture
def target(tmp_path: Path) -> TargetFiles:
    return save_target(tmp_path / "target")


def _ignore(progress: Progress) -> None:
    pass


def _die_at(step: int) -> Callable[[Progress], None]:
    def report(progress: Progress) -> None:
        if progress.step == step:
            raise KilledError

    return report


def _trainer(target: TargetFiles, checkpoint: Path, **changes: object) -> Trainer:
    config = TrainConfig(
        **{name: getattr(CONFIG, name) for name in CONFIG.__dataclass_fields__} | changes
    )
    vocab_ids = range(0, 97, 2) if changes.get("loss") else None
    draft = new_draft(target, DraftShape(num_layers=1), vocab_ids)
    return Trainer(draft, DOCUMENTS[4:], DOCUMENTS[:4], config, checkpoint)


def _weights(trainer: Trainer) -> list[Tensor]:
    return list(trainer._draft.network.state_dict().values())


def _assert_equal(one: Trainer, other: Trainer) -> None:
    assert one.losses == other.losses
    for mine, theirs in zip(_weights(one), _weights(other), strict=True):
        assert torch.equal(mine, theirs)


def test_one_seed_gives_identical_weights_twice(target: TargetFiles, tmp_path: Path) -> None:
    trainers = [_trainer(target, tmp_path / str(i)) for i in range(2)]
    for trainer in trainers:
        trainer.run(_ignore)
    _assert_equal(*trainers)


def test_another_seed_gives_others(target: TargetFiles, tmp_path: Path) -> None:
    trainers = [_trainer(target, tmp_path / str(i), seed=i) for i in range(2)]
    for trainer in trainers:
        trainer.run(_ignore)
    assert trainers[0].losses != trainers[1].losses


@pytest.mark.parametrize("step", [3, 5, 11])
def test_a_run_that_died_goes_on_as_if_it_had_not(
    target: TargetFiles, tmp_path: Path, step: int
) -> None:
    unbroken, checkpoint = _trainer(target, tmp_path / "unbroken"), tmp_path / "checkpoint"
    unbroken.run(_ignore)
    with pytest.raises(KilledError):
        _trainer(target, checkpoint).run(_die_at(step))
    again = _trainer(target, checkpoint)
    again.run(_ignore)
    _assert_equal(unbroken, again)


def test_it_goes_on_from_the_checkpoint_not_from_the_start(
    target: TargetFiles, tmp_path: Path
) -> None:
    with pytest.raises(KilledError):
        _trainer(target, tmp_path / "checkpoint").run(_die_at(8))
    steps: list[int] = []
    _trainer(target, tmp_path / "checkpoint").run(lambda progress: steps.append(progress.step))
    assert steps[0] == 6


def test_a_finished_run_is_not_repeated(target: TargetFiles, tmp_path: Path) -> None:
    first = _trainer(target, tmp_path / "checkpoint").run(_ignore)
    again = _trainer(target, tmp_path / "checkpoint")
    assert again.run(_ignore) == first
    assert len(again.losses) == first.num_steps


@pytest.mark.parametrize("changes", [{}, {"mixed_precision": True}, {"loss": Loss.HARD}])
def test_what_is_trained_on_becomes_likelier(
    target: TargetFiles, tmp_path: Path, changes: dict[str, object]
) -> None:
    trainer = _trainer(target, tmp_path / "checkpoint", num_epochs=12, **changes)
    progress = trainer.run(_ignore)
    num = len(trainer.losses) // 12
    assert sum(trainer.losses[-num:]) < 0.8 * sum(trainer.losses[:num])
    assert progress.held_out is not None


def test_frozen_weights_stay_the_targets(target: TargetFiles, tmp_path: Path) -> None:
    trainer = _trainer(target, tmp_path / "checkpoint")
    trainer.run(_ignore)
    embeddings = trainer._draft.network.model.embed_tokens.weight
    assert torch.equal(embeddings, target.weight("model.embed_tokens.weight"))


def test_the_learning_rate_rises_and_falls() -> None:
    factors = [learning_rate_factor(step, 100, 0.1) for step in range(100)]
    assert factors[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert factors[10] == 1.0
    assert factors[10:] == sorted(factors[10:], reverse=True)
    assert 0 < factors[-1] < 0.001
    assert learning_rate_factor(0, 1, 0.0) == 1.0


@pytest.mark.parametrize(
    "changes", [{"num_epochs": 0}, {"learning_rate": 0.0}, {"warmup_fraction": 1.0}]
)
def test_a_training_that_makes_no_sense_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError):
        TrainConfig(**changes)  # type: ignore[arg-type]
