"""The check of models in a process of its own, without PyTorch, says what it says in this one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from deployments.cli.model_check import check_models
from specdec_core.errors import InvalidRequestError, ModelNotSupportedError, SpecdecError
from tests.deployments.checked import check_models_apart
from tests.service.tiny_folder import quantise, save_tiny_llama, save_tokenizer

SAYS = """
import json, sys

if sys.argv[1] == "without":
    sys.modules["torch"] = None
from transformers import CONFIG_MAPPING

from specdec_core.models.registry import check_supported


def says(kind):
    try:
        check_supported(CONFIG_MAPPING[kind](), 1024)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


print(json.dumps({kind: says(kind) for kind in CONFIG_MAPPING}))
"""
STARTS = """
import sys

from deployments.config.service import ServiceConfig
from tests.deployments.checked import check_start

check_start(ServiceConfig.of(model=sys.argv[1], spec_model=sys.argv[1]), check_ports=False)
print(*sorted({"torch", "transformers"} & set(sys.modules)))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_tiny_llama(tmp_path / "model")


def refusal_of(folder: Path, draft: Path | None = None, max_model_len: int = 64) -> str:
    """The same by both ways."""
    refusals = []
    for check in (check_models, check_models_apart):
        with pytest.raises(SpecdecError) as refused:
            check(folder, draft, max_model_len)
        refusals.append((refused.type, str(refused.value)))
    assert refusals[0] == refusals[1]
    return refusals[0][1]


def test_what_can_be_served_passes(folder: Path) -> None:
    check_models_apart(folder, folder, 64)


def test_a_model_that_cannot_roll_back_is_refused(folder: Path) -> None:
    quantise(folder)
    assert "quantised weights" in refusal_of(folder)


def test_another_tokenizer_is_refused(folder: Path, tmp_path: Path) -> None:
    draft = save_tiny_llama(tmp_path / "draft")
    save_tokenizer(draft, corpus="another corpus makes other merges, " * 20)
    assert "must share a tokenizer" in refusal_of(folder, draft)


def test_whose_mistake_it_is_comes_back_too(folder: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"max_model_len must be in 1\.\.1024, got 4096"):
        check_models_apart(folder, None, 4096)


def test_a_check_that_breaks_is_told_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(ModelNotSupportedError, match=r"model ended with status 1"):
        check_models_apart(folder, None, 64)


def test_who_serves_loads_neither_torch_nor_transformers(folder: Path) -> None:
    """Half a GB, for as long as the service runs."""
    assert _run(STARTS, str(folder)) == ""


@pytest.mark.nightly
def test_every_architecture_is_judged_alike_without_torch() -> None:
    with_torch, without = (json.loads(_run(SAYS, which)) for which in ("with", "without"))
    assert without == with_torch
    assert sum(not refusal for refusal in with_torch.values()) > 100


def _run(script: str, *arguments: str) -> str:
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
