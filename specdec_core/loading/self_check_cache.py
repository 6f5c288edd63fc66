"""Stores which self-checks of exact numerics passed on this machine, so that later starts skip
them.

A proof holds for one model, one machine and one state of the code. On a GPU nothing is stored,
because the fingerprint does not cover every library there.
"""

from __future__ import annotations

import hashlib
import logging
from functools import cache
from pathlib import Path

from specdec_core.cache_folder import cache_folder
from specdec_core.loading.fingerprint import numerics_fingerprint
from specdec_core.loading.self_check import check_rows
from specdec_core.worker.model_runner import ModelRunner

_CODE = Path(__file__).parents[1]

_logger = logging.getLogger(__name__)


def check_rows_once(model: ModelRunner, digest: str) -> None:
    """`check_rows`, unless `model`, whose files have this digest, has passed it here before."""
    proof = _proof_of(model, digest)
    if proof is not None and proof.is_file():
        return
    check_rows(model)
    if proof is not None:
        _keep(proof)


def _proof_of(model: ModelRunner, digest: str) -> Path | None:
    """Return the file that marks a passed check, or None if none can be stored."""
    if model.device.type != "cpu":
        return None
    facts = (numerics_fingerprint(model, digest), str(model.max_model_len), _code_digest())
    name = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:24]
    try:
        return cache_folder("proofs") / name
    except OSError as error:
        _logger.info("cannot store the self-check's result: %s", error)
        return None


def _keep(proof: Path) -> None:
    try:
        proof.touch()
    except OSError as error:
        _logger.info("cannot store the self-check's result: %s", error)


@cache
def _code_digest() -> str:
    """Return a digest of the engine's code. Changed code needs a new proof."""
    hashed = hashlib.sha256()
    for file in sorted(_CODE.rglob("*")):
        if file.suffix in (".py", ".c", ".h"):
            hashed.update(file.read_bytes())
    return hashed.hexdigest()
