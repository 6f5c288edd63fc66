"""A saved draft is an ordinary folder; its compact form is all of it that the target lacks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from specdec_core import (
    Engine,
    Request,
    SamplingParams,
    SchedulerConfig,
    SpecMethod,
    SpeculationConfig,
)
from specdec_core.config import KPolicyName
from specdec_core.errors import ModelNotSupportedError
from specdec_core.loading.loader import LoadConfig, load_model
from specdec_core.model import score
from specdec_core.training.draft_folder import materialise, save_draft, write_compact
from specdec_core.training.draft_network import DraftShape, build_draft
from specdec_core.training.target_files import TargetFiles, open_target
from tests.cli.tiny_folder import make_tiny_folder

VOCAB_IDS = (0, 3, 4, 50, 51, 52, 90, 100, 120, 121, 122, 200, 257)
LOAD = LoadConfig(kv_cache_tokens=2048)
PROMPT = [5, 9, 17, 3, 60]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> TargetFiles:
    return open_target(str(make_tiny_folder(tmp_path_factory.mktemp("target") / "model")))


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory, target: TargetFiles) -> Path:
    folder = tmp_path_factory.mktemp("draft") / "draft"
    network = build_draft(target, DraftShape(), seed=0)
    with torch.no_grad():
        network.model.layers[0].mlp.up_proj.weight.add_(0.01)
    save_draft(network, target, VOCAB_IDS, "the card", folder)
    return folder


def _logits(folder: Path) -> torch.Tensor:
    model = load_model(str(folder), LOAD).model
    return score(model, [(model.allocate(), PROMPT, len(PROMPT))])


def test_transformers_loads_the_folder_with_its_full_head(draft: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(draft)
    assert model.dtype == torch.bfloat16
    assert model(torch.tensor([PROMPT])).logits.isfinite().all()


def test_the_card_and_the_tokenizer_are_in_the_folder(draft: Path, target: TargetFiles) -> None:
    assert (draft / "README.md").read_text() == "the card"
    for name in ("tokenizer.json", "chat_template.jinja", "generation_config.json"):
        assert (draft / name).read_bytes() == (target.folder / name).read_bytes()


def test_a_reduced_head_has_the_full_heads_logits_and_no_others(draft: Path) -> None:
    reduced = _logits(draft)
    config = draft / "config.json"
    content = json.loads(config.read_text())
    try:
        config.write_text(json.dumps({k: v for k, v in content.items() if "vocab_ids" not in k}))
        full = _logits(draft)
    finally:
        config.write_text(json.dumps(content))
    listed = torch.zeros(reduced.shape[1], dtype=torch.bool)
    listed[list(VOCAB_IDS)] = True
    assert torch.allclose(reduced[:, listed], full[:, listed], atol=0.05)
    assert (reduced[:, ~listed] == -torch.inf).all()
    assert full.isfinite().all()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_reduced_draft_changes_no_token(
    draft: Path, target: TargetFiles, temperature: float
) -> None:
    params = SamplingParams(temperature=temperature, seed=3, max_tokens=40)
    request = Request(request_id="1", prompt_token_ids=tuple(PROMPT), params=params)

    def decode(method: SpecMethod) -> tuple[list[int], int]:
        pool = SchedulerConfig(
            speculation=SpeculationConfig(method=method, k_policy=KPolicyName.FIXED)
        )
        path = str(draft) if method is SpecMethod.DRAFT_MODEL else None
        engine = Engine.load(str(target.folder), path, pool=pool, load=LOAD)
        return list(engine.tokens(request)), engine.stats.num_drafted

    plain, _ = decode(SpecMethod.NONE)
    drafted, num_drafted = decode(SpecMethod.DRAFT_MODEL)
    assert drafted == plain
    assert num_drafted > 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "cannot read a list"),
        ('{"a": 1}', "is not a list"),
        ("[]", "is not a list"),
        ("[3, 2]", "in ascending order"),
        ("[2, 2]", "in ascending order"),
        ("[-1, 2]", "in ascending order"),
        ("[1, 258]", "0..257"),
    ],
)
def test_a_broken_list_of_ids_is_refused(draft: Path, content: str, message: str) -> None:
    file = draft / "draft_vocab.json"
    before = file.read_text()
    try:
        file.write_text(content)
        with pytest.raises(ModelNotSupportedError, match=message):
            load_model(str(draft), LOAD)
    finally:
        file.write_text(before)


def test_a_compact_draft_becomes_the_same_folder_again(
    draft: Path, target: TargetFiles, tmp_path: Path
) -> None:
    write_compact(draft, target, tmp_path / "compact")
    own = load_file(tmp_path / "compact" / "model.safetensors")
    assert own.keys() == {"model.layers.0.mlp.up_proj.weight"}
    materialise(tmp_path / "compact", target, tmp_path / "full")
    assert {f.name for f in (tmp_path / "full").iterdir()} == {f.name for f in draft.iterdir()}
    for file in draft.iterdir():
        if file.suffix != ".safetensors":
            assert (tmp_path / "full" / file.name).read_bytes() == file.read_bytes()
    weights = load_file(draft / "model.safetensors")
    again = load_file(tmp_path / "full" / "model.safetensors")
    assert weights.keys() == again.keys()
    assert all(torch.equal(weights[name], again[name]) for name in weights)


def test_materialising_again_replaces_the_folder(
    draft: Path, target: TargetFiles, tmp_path: Path
) -> None:
    write_compact(draft, target, tmp_path / "compact")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "old").touch()
    materialise(tmp_path / "compact", target, tmp_path / "full")
    assert not (tmp_path / "full" / "old").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"compact", "full"}


def test_a_compact_draft_of_another_target_is_refused(
    draft: Path, target: TargetFiles, tmp_path: Path
) -> None:
    write_compact(draft, target, tmp_path / "compact")
    other = open_target(str(make_tiny_folder(tmp_path / "other", seed=1)))
    with pytest.raises(ModelNotSupportedError, match="other weights"):
        materialise(tmp_path / "compact", other, tmp_path / "full")
    assert not (tmp_path / "full").exists()


def test_a_complete_folder_is_no_compact_one(
    draft: Path, target: TargetFiles, tmp_path: Path
) -> None:
    with pytest.raises(ModelNotSupportedError, match="not a compact draft"):
        materialise(draft, target, tmp_path / "full")
