"""Model folders bring data, never code."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from deployments.config.service import ServiceConfig
from specdec_core.errors import ModelNotSupportedError
from specdec_core.loading.loader import load_model
from tests.deployments.checked import check_start
from tests.service.tiny_folder import save_tiny_llama


class _Trap:
    """Unpickled, it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self._mark,))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_tiny_llama(tmp_path / "model")


def test_pickled_weights_are_refused_unread(folder: Path, tmp_path: Path) -> None:
    mark = tmp_path / "was run"
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(_Trap(mark)))
    for refuse in (
        lambda: check_start(ServiceConfig.of(model=str(folder))),
        lambda: load_model(str(folder)),
    ):
        with pytest.raises(ModelNotSupportedError, match=r"holds no \*\.safetensors weights"):
            refuse()
    assert not mark.exists()
    pickle.loads((folder / "pytorch_model.bin").read_bytes())
    assert mark.exists()  # it would have been


def test_code_beside_a_model_is_not_run(folder: Path, tmp_path: Path) -> None:
    mark = tmp_path / "was run"
    (folder / "code.py").write_text(f"open({str(mark)!r}, 'w')\nConfig = Model = object\n")
    settings = json.loads((folder / "config.json").read_text())
    settings["auto_map"] = {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}
    (folder / "config.json").write_text(json.dumps(settings))
    assert load_model(str(folder)).model.vocab_size > 0
    assert not mark.exists()


def test_an_architecture_that_only_its_own_code_knows_is_refused(
    folder: Path, tmp_path: Path
) -> None:
    mark = tmp_path / "was run"
    (folder / "code.py").write_text(f"open({str(mark)!r}, 'w')\nConfig = Model = object\n")
    settings = json.loads((folder / "config.json").read_text()) | {"model_type": "unheard-of"}
    settings["auto_map"] = {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}
    (folder / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ModelNotSupportedError):
        check_start(ServiceConfig.of(model=str(folder)))
    assert not mark.exists()
