"""Settings recorded in a work folder, so that only work with the same settings continues there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from specdec_core.errors import InvalidRequestError


def claim_folder(folder: Path, settings: dict[str, Any]) -> None:
    """Record `settings` in `folder`, or compare them with those recorded there.

    Raises InvalidRequestError naming the first setting that differs.
    """
    file = folder / "settings.json"
    wanted = json.loads(json.dumps(settings, default=str))
    if not file.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(file, (json.dumps(wanted, indent=2) + "\n").encode())
        return
    found = json.loads(file.read_text())
    for name in sorted(found.keys() | wanted.keys()):
        if found.get(name) != wanted.get(name):
            raise InvalidRequestError(
                f"{folder} was started with {name}={found.get(name)!r}, not "
                f"{wanted.get(name)!r}: repeat that setting or choose another folder"
            )


def write_atomically(file: Path, content: bytes) -> None:
    """Write `file` so that a reader finds the old or the new content, whenever this process
    dies."""
    scratch = file.with_name(f".{file.name}.new")
    scratch.write_bytes(content)
    scratch.replace(file)
