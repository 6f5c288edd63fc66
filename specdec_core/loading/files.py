"""Where a model's files are, and a digest of what is in them."""

from __future__ import annotations

import hashlib
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from specdec_core.errors import ModelNotSupportedError

_WANTED_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
"""Weights as safetensors only: nothing that runs code when it is read."""
_OTHER_FORMATS = ["*/*", "consolidated*"]
"""The same weights once more, for other programs: original/, metal/ and onnx/ of some models, and
what Mistral's own program reads."""
_HEADER_LENGTH_BYTES = 8


def local_folder(path_or_id: str, revision: str | None = None) -> Path:
    """Return the folder of a model: `path_or_id` itself, or the downloaded snapshot of a hub ID."""
    folder = Path(path_or_id).expanduser()
    if folder.is_dir():
        return folder
    # Hub IDs are `name` or `owner/name`. Anything absolute, relative or deeper is a path.
    if path_or_id.startswith(("/", ".", "~")) or path_or_id.count("/") > 1:
        raise ModelNotSupportedError(f"there is no model folder at {path_or_id}")
    try:
        return Path(
            snapshot_download(
                path_or_id,
                revision=revision,
                allow_patterns=_WANTED_FILES,
                ignore_patterns=_OTHER_FORMATS,
            )
        )
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ModelNotSupportedError(
            f"{path_or_id} is neither a folder nor a model that can be downloaded: {error}"
        ) from error


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files, sorted. Raises ModelNotSupportedError if there are none."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ModelNotSupportedError(
            f"{folder} holds no *.safetensors weights; other formats are not loaded"
        )
    return files


def model_digest(folder: Path) -> str:
    """sha256 over the configuration and every weight file's name, size and header.

    Headers name each tensor with its type, shape and place. The weights themselves are not read:
    that would cost seconds per gigabyte.
    """
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for file in weight_files(folder):
        digest.update(f"{file.name} {file.stat().st_size}".encode())
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(_HEADER_LENGTH_BYTES), "little")
            digest.update(stream.read(length))
    return digest.hexdigest()
