"""Where a model's folder has its chat templates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deployments.text.chat_template import ChatTemplate, compile_template
from specdec_core.errors import ModelNotSupportedError


def read_template(
    folder: Path, settings: Mapping[str, Any], chosen: Path | None = None
) -> ChatTemplate | None:
    """Return the chosen file's template, else the model's; None if there is none.

    `settings` are those of tokenizer_config.json. Raises ModelNotSupportedError.
    """
    if chosen is not None:
        return compile_template(chosen.read_text(encoding="utf-8"))
    sources = _sources(folder, settings)
    default = sources.get("default")
    tool_use = sources.get("tool_use")
    if default is not None:
        return compile_template(default, tool_use)
    return None if tool_use is None else compile_template(tool_use)


def _sources(folder: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the sources by name, from the newest form that is there, as in transformers."""
    files = {file.stem: file for file in sorted(folder.glob("chat_templates/*.jinja"))}
    if (folder / "chat_template.jinja").is_file():
        files["default"] = folder / "chat_template.jinja"
    if files:
        return {name: file.read_text(encoding="utf-8") for name, file in files.items()}
    return _named(settings.get("chat_template") or _legacy(folder / "chat_template.json"))


def _named(template: Any) -> dict[str, str]:
    """Return a single template as the default; older models have a list with names."""
    if isinstance(template, list):
        return {entry["name"]: entry["template"] for entry in template}
    return {"default": template} if template else {}


def _legacy(file: Path) -> Any:
    if not file.is_file():
        return None
    try:
        return json.loads(file.read_text(encoding="utf-8")).get("chat_template")
    except (ValueError, AttributeError) as error:
        raise ModelNotSupportedError(f"{file} is no JSON object: {error}") from error
