"""What a self-check has proven is not proven again, unless something may have changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdec_core.errors import NotExactError
from specdec_core.loading import self_check_cache as proofs
from specdec_core.loading.self_check import make_exact
from specdec_core.loading.self_check_cache import check_rows_once
from specdec_core.worker.model_runner import ModelRunner
from tests.tiny_models import VOCAB, tiny_model

pytestmark = pytest.mark.usefixtures("searched_once")


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Where each check leaves a word; the machine's cache is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    done: list[str] = []
    monkeypatch.setattr(proofs, "check_rows", lambda model: done.append("checked"))
    return done


def start(digest: str = "some", max_model_len: int = 64) -> ModelRunner:
    model = ModelRunner(
        tiny_model("llama"),
        vocab_size=VOCAB,
        kv_cache_tokens=1024,
        max_model_len=max_model_len,
    )
    make_exact(model, lambda model: check_rows_once(model, digest))
    return model


def test_the_second_start_of_a_model_is_not_checked(checked: list[str]) -> None:
    start()
    start()
    assert checked == ["checked"]


def test_other_weights_other_lengths_and_other_code_are_checked(
    checked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    start()
    start("other")
    start(max_model_len=48)
    monkeypatch.setattr(proofs, "_code_digest", lambda: "edited")
    start()
    assert len(checked) == 4


def test_what_failed_is_checked_again(checked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(model: ModelRunner) -> None:
        checked.append("failed")
        raise NotExactError("rows see each other")

    monkeypatch.setattr(proofs, "check_rows", fail)
    for _ in range(2):
        with pytest.raises(NotExactError):
            start()
    assert checked == ["failed", "failed"]


def test_without_a_cache_every_start_is_checked(
    checked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    start()
    start()
    assert checked == ["checked", "checked"]
