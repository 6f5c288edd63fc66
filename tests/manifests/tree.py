"""What k8s/ is made of: the kustomizations that are applied, their texts, and how they are made."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from deployments.app import serve_config_text
from deployments.config.service import load_service_config

ROOT = Path(__file__).parents[2]
K8S = ROOT / "k8s"
FOLDERS = {folder.name: folder for folder in (K8S / "base", *sorted((K8S / "overlays").iterdir()))}
"""Every kustomization that can be applied, by the name of what it renders to."""

Manifest = dict[str, Any]


def serve_config_folders() -> list[Path]:
    """Those that have settings of their own."""
    return [folder for folder in FOLDERS.values() if (folder / "service.yaml").is_file()]


def derived_settings(folder: Path) -> str | None:
    """service.yaml of a folder that only says what differs from production; None for another."""
    changes = folder / "changes.yaml"
    if not changes.is_file():
        return None
    production = yaml.safe_load((K8S / "overlays" / "production" / "service.yaml").read_text())
    settings = production | yaml.safe_load(changes.read_text())
    made = "# Made from ../production/service.yaml and changes.yaml: `make manifests`.\n"
    return made + yaml.safe_dump(settings, sort_keys=False)


def serve_config(folder: Path) -> str:
    """The text that belongs to the folder's settings."""
    return serve_config_text(load_service_config(folder / "service.yaml", {}))


def rendered_path(name: str) -> Path:
    return K8S / "rendered" / f"{name}.yaml"


def rendered(name: str) -> list[Manifest]:
    """The objects as they are committed."""
    text = rendered_path(name).read_text()
    return [dict(one) for one in yaml.load_all(text, Loader=yaml.CSafeLoader)]


def kustomize_command() -> list[str] | None:
    """None where nothing can render."""
    for command in (["kubectl", "kustomize"], ["kustomize", "build"]):
        if shutil.which(command[0]):
            return command
    return None


def render(folder: Path) -> str:
    """Raises CalledProcessError with kustomize's words."""
    command = kustomize_command()
    assert command is not None, "callers look first"
    output = subprocess.run([*command, str(folder)], capture_output=True, text=True, check=True)
    return output.stdout
