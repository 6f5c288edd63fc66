"""Declares the API keys of clients: what is stored of them, and the file that names them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from deployments.config.client_limits import ClientLimits
from deployments.config.flags import comma_names, flag, setting

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
            raise ValueError(
                f"api_key_file: {path}:{number}: a line needs a name without a colon, then a key"
            )
        digest = key_digest(words[1])
        if digest in names or words[0] in names.values():
            raise ValueError(f"api_key_file: {path}:{number}: this name or key is listed twice")
        names[digest] = words[0]
    return names


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyOptions:
    """Keys of clients, and limits that hold for each key."""

    PANEL: ClassVar[str] = "Address"

    api_keys: tuple[str, ...] = setting((), parse=comma_names, is_secret=True)
    """Keys that clients may use. In the environment, commas separate them."""
    api_key_file: Path | None = flag(None, "File with a name and a key on each line.")
    """Limits and metrics use the names."""
    api_key_sha256: tuple[str, ...] = setting(())
    """Digests of API keys, as `name:digest` or the digest alone.

    A deployed configuration carries keys in this form.
    """
    max_concurrent_per_key: int | None = flag(
        None,
        "Maximum requests of one key that run or wait at a time. Default: no limit.",
        bounds={"ge": 1},
        metavar="N",
    )
    """Every choice counts."""
    requests_per_minute_per_key: int | None = flag(
        None,
        "Maximum requests of one key in a minute. Default: no limit.",
        bounds={"ge": 1},
        metavar="N",
    )

    def __post_init__(self) -> None:
        if self.api_key_file is not None:
            read_key_file(self.api_key_file)

    @property
    def named(self) -> dict[str, str]:
        """Name of every accepted API key, by the key's SHA-256. Empty: no key is needed."""
        split = [entry.rpartition(":") for entry in self.api_key_sha256]
        named = {digest: name or default_name(digest) for name, _, digest in split}
        filed = read_key_file(self.api_key_file) if self.api_key_file else {}
        given = [key_digest(key) for key in self.api_keys]
        return named | filed | {digest: default_name(digest) for digest in given}

    def limits(self, cell: int, num_cells: int) -> ClientLimits:
        """Return the limits of a key in a cell."""
        return ClientLimits(
            max_concurrent=self.max_concurrent_per_key,
            requests_per_minute=self.requests_per_minute_per_key,
            cell=cell,
            num_cells=num_cells,
        )
