"""Check in a separate process that the models can be served.

The check uses transformers. With PyTorch the import takes 3 s and half a GB, which `specdec serve`
would hold for as long as it runs. Without PyTorch, transformers reads configurations and tokenizers
in 0.8 s and 64 MB. The process can then never import PyTorch again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from deployments.runtime.python_path import python_path
from specdec_core.errors import InvalidRequestError, ModelNotSupportedError

_REFUSALS = {error.__name__: error for error in (InvalidRequestError, ModelNotSupportedError)}


@contextmanager
def checking_models(
    target: Path, draft: Path | None, max_model_len: int
) -> Iterator[Callable[[], None]]:
    """Run the check during the body. The yielded function waits for its answer.

    That function raises ModelNotSupportedError or InvalidRequestError with the reason.
    """
    command = [sys.executable, "-m", __name__, str(max_model_len), str(target)]
    command += [] if draft is None else [str(draft)]
    environment = os.environ | {"PYTHONPATH": python_path(), "TRANSFORMERS_VERBOSITY": "error"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield lambda: _raise_refusal(process, target)
        finally:
            process.kill()


def _raise_refusal(process: subprocess.Popen[str], target: Path) -> None:
    said, _ = process.communicate()
    if process.returncode:
        message = f"checking {target} ended with status {process.returncode}"
        raise ModelNotSupportedError(message)
    refusal = json.loads(said.splitlines()[-1])  # a library may have printed lines before
    if refusal is not None:
        raise _REFUSALS[refusal["kind"]](refusal["message"])


def check_models(target: Path, draft: Path | None, max_model_len: int) -> None:
    """Check the models in this process. Raises ModelNotSupportedError or InvalidRequestError."""
    _check_model(target, max_model_len)
    if draft is not None:
        _check_model(draft, max_model_len)
        _check_pair(target, draft)


def _check_model(folder: Path, max_model_len: int) -> None:
    from transformers import AutoConfig

    from specdec_core.models.registry import check_supported

    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ModelNotSupportedError(f"no usable config.json in {folder}: {error}") from error
    check_supported(config, max_model_len)


def _check_pair(target: Path, draft: Path) -> None:
    from specdec_core.loading.tokenizers import check_same_tokenizer, load_tokenizer

    check_same_tokenizer(load_tokenizer(str(target)), load_tokenizer(str(draft)))


def _answer(max_model_len: str, target: str, draft: str | None = None) -> dict[str, str] | None:
    try:
        check_models(Path(target), None if draft is None else Path(draft), int(max_model_len))
    except tuple(_REFUSALS.values()) as error:
        return {"kind": type(error).__name__, "message": str(error)}
    return None


if __name__ == "__main__":
    sys.modules["torch"] = None  # type: ignore[assignment]  # as if it were not installed
    print(json.dumps(_answer(*sys.argv[1:])))
