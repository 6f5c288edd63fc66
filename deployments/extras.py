"""Optional dependencies: the command that installs one."""

from __future__ import annotations


def install_command(extra: str) -> str:
    """Return the command for an extra of pyproject.toml. No package index has this project yet."""
    return f"pip install '.[{extra}]' in the folder of the source code"
