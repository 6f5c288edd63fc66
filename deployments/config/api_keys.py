"""API keys: what is stored of them, and the file that names them."""

from __future__ import annotations

import hashlib
from pathlib import Path

_NAME_DIGITS = 8
_COMMENT = "#"


def key_digest(key: str) -> str:
    """Return the SHA-256 of a key. Nothing else of a key is stored."""
    return hashlib.sha256(key.encode()).hexdigest()


def default_name(digest: str) -> str:
    """Return the name of a key without a name."""
    return f"key-{digest[:_NAME_DIGITS]}"


def read_key_file(path: Path) -> dict[str, str]:
    """Return names by digest, from lines `name key`. Empty lines and lines that begin with # are
    skipped.

    Raises ValueError naming the line, never the key.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ValueError(f"api_key_file: {path}: {error.strerror}") from error
    names: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith(_COMMENT):
            continue
        words = line.split()
        if len(words) != 2 or ":" in words[0]:
            raise ValueError(f"api_key_file: {path}:{number}: a name without colon, then a key")
        digest = key_digest(words[1])
        if digest in names or words[0] in names.values():
            raise ValueError(f"api_key_file: {path}:{number}: that name or key stands there twice")
        names[digest] = words[0]
    return names
