"""`make manifests`: serveConfigV2 from each service.yaml, then k8s/rendered from all of it."""

from __future__ import annotations

import sys

from tests.manifests import tree


def main() -> int:
    for folder in tree.FOLDERS.values():
        if (settings := tree.derived_settings(folder)) is not None:
            (folder / "service.yaml").write_text(settings)
    for folder in tree.serve_config_folders():
        (folder / "serve_config.yaml").write_text(tree.serve_config(folder))
    if tree.kustomize_command() is None:
        print("neither kubectl nor kustomize is here: k8s/rendered is as it was")
        return 1
    for name, folder in tree.FOLDERS.items():
        tree.rendered_path(name).write_text(tree.render(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
