"""A draft as files: a complete folder, and a compact one without the parts that the target has.

A complete folder is an ordinary folder of transformers, with bfloat16 safetensors. A compact folder
lacks the tokenizer and every weight that is bit for bit the target's. `materialise` puts them back.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from specdec_core.errors import ModelNotSupportedError
from specdec_core.loading.draft_vocabulary import FILE_NAME, write_draft_vocabulary
from specdec_core.training.target_files import TargetFiles

_WEIGHTS = "model.safetensors"
_CARD = "README.md"
_FROM_TARGET = "from_target"
"""Key in a compact file's header: a JSON list of the weights that the target has."""
_TARGET_DIGEST = "target_weights_sha256"
_COMPACT_FILES = ("config.json", FILE_NAME, _CARD)


def save_draft(
    network: LlamaForCausalLM,
    target: TargetFiles,
    vocab_ids: Sequence[int] | None,
    card: str,
    folder: Path,
) -> None:
    """Write the complete folder in bfloat16; `network` itself is rounded to it."""
    folder.mkdir(parents=True, exist_ok=True)
    if vocab_ids is not None:
        write_draft_vocabulary(folder, network.config, vocab_ids)
    nn.Module.to(network, torch.bfloat16)
    network.config.dtype = torch.bfloat16
    network.save_pretrained(folder)
    target.copy_text_files(folder)
    (folder / _CARD).write_text(card)
    (folder / _WEIGHTS).chmod(0o644)


def write_compact(draft: Path, target: TargetFiles, folder: Path) -> None:
    """Write the compact folder of the draft in `draft`, without the parts that its target has."""
    weights = load_file(draft / _WEIGHTS)
    shared = sorted(name for name in weights if _is_targets(name, weights[name], target))
    own = {name: weight for name, weight in weights.items() if name not in shared}
    header = {
        "format": "pt",
        _FROM_TARGET: json.dumps(shared),
        _TARGET_DIGEST: _digest(weights[name] for name in shared),
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(own, folder / _WEIGHTS, header)
    (folder / _WEIGHTS).chmod(0o644)
    for name in _COMPACT_FILES:
        if (draft / name).is_file():
            shutil.copyfile(draft / name, folder / name)


def materialise(compact: Path, target: TargetFiles, folder: Path) -> None:
    """Make the complete folder of a compact one. An older complete folder is replaced.

    Raises ModelNotSupportedError if the draft was made for another target.
    """
    own, header = _read_compact(compact / _WEIGHTS)
    shared = {
        name: target.weight(name).to(torch.bfloat16) for name in json.loads(header[_FROM_TARGET])
    }
    if _digest(shared.values()) != header[_TARGET_DIGEST]:
        raise ModelNotSupportedError(
            f"the draft in {compact} was made for a target with other weights than {target.folder}"
        )
    with _replacing(folder) as scratch:
        save_file({**own, **shared}, scratch / _WEIGHTS, {"format": "pt"})
        (scratch / _WEIGHTS).chmod(0o644)
        target.copy_text_files(scratch)
        for name in _COMPACT_FILES:
            if (compact / name).is_file():
                shutil.copyfile(compact / name, scratch / name)


def _read_compact(file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safe_open(file, framework="pt") as content:
            header = dict(content.metadata() or {})
        own = load_file(file)
    except (OSError, SafetensorError) as error:
        raise ModelNotSupportedError(f"{file} is not a compact draft: {error}") from error
    if _FROM_TARGET not in header:
        raise ModelNotSupportedError(f"{file} is not a compact draft: it names no target weights")
    return own, header


def _is_targets(name: str, weight: Tensor, target: TargetFiles) -> bool:
    if name not in target.files:
        return False
    return torch.equal(target.weight(name).to(weight.dtype), weight)


def _digest(weights: Iterable[Tensor]) -> str:
    digest = hashlib.sha256()
    for weight in weights:
        digest.update(weight.contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


@contextmanager
def _replacing(folder: Path) -> Iterator[Path]:
    """Yield a scratch folder that replaces `folder` once it is complete."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        ready = Path(scratch) / "ready"
        ready.mkdir()
        yield ready
        if folder.is_dir():
            folder.rename(Path(scratch) / "old")
        ready.rename(folder)
