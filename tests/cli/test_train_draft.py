"""`specdec train-draft` on a tiny random target: it learns, repeats, and survives being killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from deployments.cli.main import main
from deployments.cli.train_draft.chat import template_chat
from deployments.cli.train_draft.options import ShapeOptions, TextOptions, TrainingOptions
from deployments.config.flags import declarations
from deployments.demo import drafts as demo_drafts
from deployments.text.tokenizer import load_text_model
from specdec_core.errors import InvalidRequestError
from specdec_core.loading.loader import LoadConfig, load_model
from specdec_core.training.documents import read_chunk
from specdec_core.training.draft_network import DraftShape
from specdec_core.training.synthesis import TextConfig
from specdec_core.training.trainer import TrainConfig
from tests.cli.conftest import Outcome, Specdec
from tests.cli.tiny_folder import make_tiny_folder

TEXT = ["--documents", 128, "--max-answer-tokens", 32, "--max-user-tokens", 8,
        "--max-prompt-tokens", 96, "--text-batch-size", 64, "--candidates", 8,
        "--temperatures", 0]  # fmt: skip
TRAINING = ["--epochs", 6, "--batch-tokens", 1024, "--learning-rate", 0.003, "--held-out", 24,
            "--checkpoint-every", 4, "--seed", 1]  # fmt: skip
REACHED = 0.37
"""Held-out greedy agreement after this training."""
UNTRAINED = 0.30
"""The most of it before: a layer of the target alone."""

Train = Callable[..., Outcome]


@pytest.fixture(scope="module")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Written by the first test that trains, shared by the others."""
    return tmp_path_factory.mktemp("text") / "text"


@pytest.fixture
def arguments(tiny_folder: Path, text_folder: Path) -> list[object]:
    return ["train-draft", "--target", tiny_folder, "--text", text_folder, *TEXT, *TRAINING]


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def _assert_equal(one: Path, other: Path) -> None:
    mine, theirs = _weights(one), _weights(other)
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def _state(folder: Path) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(folder / "training" / "checkpoint.pt", weights_only=True)
    return state


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, text_folder: Path, tiny_folder: Path) -> Path:
    """A draft trained without a break."""
    folder = tmp_path_factory.mktemp("trained") / "draft"
    arguments = ["train-draft", "--target", tiny_folder, "--text", text_folder, *TEXT, *TRAINING,
                 "--output", folder]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["specdec", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
    assert not end.value.code
    return folder


def _command(arguments: list[object]) -> list[str]:
    call = "from deployments.cli.main import main; main()"
    return [sys.executable, "-c", call, *map(str, arguments)]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(["proto", *sys.path]), "COLUMNS": "200"}


def _figure(card: str, row: str) -> float:
    line = next(line for line in card.splitlines() if line.startswith(f"| {row}"))
    return float(line.split("|")[2])


def test_a_draft_reaches_the_stated_acceptance(
    trained: Path, arguments: list[object], specdec: Specdec, tmp_path: Path
) -> None:
    card = (trained / "README.md").read_text()
    reached = _figure(card, "greedy choices equal")
    assert reached >= REACHED
    untrained = [*arguments, "--output", tmp_path / "draft", "--learning-rate", 1e-9]
    outcome = specdec(*untrained, "--epochs", 1)
    assert outcome.status == 0, outcome.err
    assert re.search(r"^training \d+/\d+ loss \d.*held out", outcome.err, re.MULTILINE)
    before = (tmp_path / "draft" / "README.md").read_text()
    assert _figure(before, "greedy choices equal") < UNTRAINED


def test_one_seed_gives_identical_weights_twice(
    trained: Path, arguments: list[object], specdec: Specdec, tmp_path: Path
) -> None:
    """The text is written anew, too."""
    again = tmp_path / "again"
    place = arguments.index("--text") + 1
    arguments[place] = tmp_path / "text"
    outcome = specdec(*arguments, "--output", again)
    assert outcome.status == 0, outcome.err
    _assert_equal(trained, again)


def test_a_training_that_was_killed_goes_on_without_a_jump(
    trained: Path, arguments: list[object], specdec: Specdec, tmp_path: Path
) -> None:
    """It began in another process than the one that it is compared with."""
    folder = tmp_path / "draft"
    arguments += ["--output", folder]
    process = subprocess.Popen(
        _command(arguments),
        env=_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    checkpoint = folder / "training" / "checkpoint.pt"
    while not checkpoint.is_file() and process.poll() is None:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    num_steps = len(_state(folder)["losses"])
    outcome = specdec(*arguments)
    assert outcome.status == 0, outcome.err
    assert 0 < num_steps < len(_state(folder)["losses"])
    assert _state(folder)["losses"] == _state(trained)["losses"]
    _assert_equal(folder, trained)


def test_the_folder_is_printed_last_and_decodes(trained: Path, tiny_folder: Path) -> None:
    loaded = load_model(str(trained), LoadConfig(kv_cache_tokens=512))
    assert loaded.model.vocab_size == 258
    assert loaded.end_token_ids == load_text_model(str(tiny_folder)).end_token_ids


def test_the_card_tells_how_to_repeat_it(trained: Path, tiny_folder: Path) -> None:
    card = (trained / "README.md").read_text()
    assert "--learning-rate 0.003 --checkpoint-every 4" in card
    assert str(tiny_folder.parent) not in card
    start = card.index("```json") + len("```json")
    settings = json.loads(card[start : card.index("```", start)])
    assert settings["training"]["seed"] == 1
    assert settings["text"]["num_documents"] == 128
    assert settings["made_on"]["device"] == "cpu"


def test_other_settings_do_not_go_on_in_the_same_folder(
    trained: Path, arguments: list[object], specdec: Specdec
) -> None:
    outcome = specdec(*arguments, "--output", trained, "--seed", 5)
    assert outcome.status == 2
    assert "seed=1, not 5" in outcome.err


def test_a_narrow_draft_with_a_reduced_head_of_given_prompts(
    tiny_folder: Path, specdec: Specdec, tmp_path: Path, write_lines: Callable[..., Path]
) -> None:
    prompts = write_lines({"prompt": "abc"}, {"turns": ["def", "not used"]}, {"prompt": "ghi"})
    outcome = specdec(
        "train-draft", "--target", tiny_folder, "--output", tmp_path / "draft", "--prompts",
        prompts, *TEXT, "--documents", 9, "--held-out", 1, "--epochs", 1, "--hidden-size", 32,
        "--layers", 2, "--draft-vocab-size", 64, "--loss", "hard",
    )  # fmt: skip
    assert outcome.status == 0, outcome.err
    assert outcome.out.endswith(f"{tmp_path / 'draft'}\n")
    config = json.loads((tmp_path / "draft" / "config.json").read_text())
    assert (config["hidden_size"], config["num_hidden_layers"]) == (32, 2)
    assert len(json.loads((tmp_path / "draft" / config["draft_vocab_ids"]).read_text())) == 64
    load_model(str(tmp_path / "draft"), LoadConfig(kv_cache_tokens=512))


def test_excluded_prompts_are_not_in_the_text(
    tiny_folder: Path, specdec: Specdec, tmp_path: Path, write_lines: Callable[..., Path]
) -> None:
    words = ["one two three", "four five six", "seven eight nine"]
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in words))
    excluded = write_lines({"turns": ["another", "Four, five SIX!"]}, {"prompt": "ten"})
    outcome = specdec(
        "train-draft", "--target", tiny_folder, "--output", tmp_path / "draft", "--prompts",
        prompts, "--exclude", excluded, *TEXT, "--documents", 6, "--held-out", 1, "--epochs", 1,
    )  # fmt: skip
    assert outcome.status == 0, outcome.err
    (chunk,) = (tmp_path / "draft" / "training" / "text").glob("*.safetensors")
    documents = read_chunk(chunk).documents
    assert [document.index for document in documents] == [0, 2, 3, 5]
    assert "2 documents were dropped" in (tmp_path / "draft" / "README.md").read_text()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--draft-vocab-size", 1000], "at most the target's 258"),
        (["--held-out", 500], "ask for more documents"),
        (["--layers", 5], "only 2 layers"),
        (["--loss", "soft"], "not one of kl, hard"),
        (["--temperatures", "x"], "not a list of numbers"),
        (["--temperatures", "-1"], "temperature must be"),
    ],
)
def test_what_cannot_be_made_is_refused(
    tiny_folder: Path, specdec: Specdec, tmp_path: Path, flags: list[object], message: str
) -> None:
    base = ["train-draft", "--target", tiny_folder, "--output", tmp_path / "draft", *TEXT]
    outcome = specdec(*base, "--documents", 2, "--held-out", 1, *flags)
    assert outcome.status == 2
    assert message in outcome.err


def test_user_turns_stand_where_the_template_puts_them(tiny_folder: Path) -> None:
    chat = template_chat(load_text_model(str(tiny_folder)))
    ids = chat.encode_user("abc")
    assert ids[: len(chat.user_prefix_ids)] == chat.user_prefix_ids
    behind = len(chat.user_prefix_ids) + len(chat.encode_part("abc"))
    assert ids[behind] in chat.user_end_ids


def test_a_model_without_a_template_is_refused(tmp_path: Path) -> None:
    folder = make_tiny_folder(tmp_path)
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(InvalidRequestError, match="no chat template"):
        template_chat(load_text_model(str(folder)))


@pytest.fixture
def shipped(
    tiny_folder: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The trained draft as package data, its target as the demo model; the home folder."""
    from specdec_core.training.draft_folder import write_compact
    from specdec_core.training.target_files import open_target

    home = tmp_path / "home"
    monkeypatch.setenv("SPECDEC_HOME", str(home))
    (home / "models").mkdir(parents=True)
    (home / "models" / "smollm2-135m").symlink_to(tiny_folder)
    monkeypatch.setattr(demo_drafts, "DATA", tmp_path / "data")
    compact = tmp_path / "data" / "smollm2-135m-draft"
    write_compact(trained, open_target(str(tiny_folder)), compact)
    return home / "models"


@pytest.mark.parametrize("name", ["smollm2-135m", "smollm2-135m-draft"])
def test_pulling_a_demo_model_completes_its_draft(
    shipped: Path, trained: Path, specdec: Specdec, name: str
) -> None:
    outcome = specdec("models", "pull", name)
    assert outcome.out == f"{shipped / name}\n", outcome.err
    _assert_equal(shipped / "smollm2-135m-draft", trained)
    load_model(str(shipped / "smollm2-135m-draft"), LoadConfig(kv_cache_tokens=512))
    assert str(shipped / "smollm2-135m-draft") in specdec("models", "list").out


def test_a_better_draft_replaces_the_pulled_one(shipped: Path, specdec: Specdec) -> None:
    specdec("models", "pull")
    card = demo_drafts.DATA / "smollm2-135m-draft" / "README.md"
    card.write_text("a better one")
    specdec("models", "pull")
    assert (shipped / "smollm2-135m-draft" / "README.md").read_text() == "a better one"


def test_a_draft_that_is_not_shipped_says_so(
    shipped: Path, specdec: Specdec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(demo_drafts, "DATA", tmp_path / "nothing")
    outcome = specdec("models", "pull", "smollm2-135m-draft")
    assert outcome.status == 1
    assert "ships no weights" in outcome.err


def test_the_compact_form_is_written_when_asked_for(
    arguments: list[object], specdec: Specdec, tmp_path: Path
) -> None:
    flags = ["--output", tmp_path / "draft", "--compact", tmp_path / "compact", "--epochs", 1]
    outcome = specdec(*arguments, *flags)
    assert outcome.status == 0, outcome.err
    own = _weights(tmp_path / "compact")
    assert own.keys() < _weights(tmp_path / "draft").keys()
    assert not [name for name in own if "embed" in name]


@pytest.mark.parametrize(
    ("record", "options", "without_a_flag"),
    [
        (TextConfig, TextOptions, {"openers", "seed", "user_temperature"}),
        (DraftShape, ShapeOptions, set()),
        (TrainConfig, TrainingOptions, set()),
    ],
)
def test_every_setting_of_a_job_has_the_name_and_the_default_of_its_flag(
    record: type, options: type, without_a_flag: set[str]
) -> None:
    settings = {field.name: field.default for field in fields(record)}
    flags = {declared.name: declared.default for declared in declarations(options)}
    assert settings.keys() - flags.keys() == without_a_flag
    assert all(flags[name] == default for name, default in settings.items() if name in flags)
