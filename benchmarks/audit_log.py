"""What an audit has finished: a line a cell, and the reference's answers so far.

A line counts only for the engine that it was made with: the tree of specdec_core in git, or what
lies in the folder where that was changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness.machine import git
from deployments.cli.verify.compare import Answer
from specdec_core.logprobs import TokenLogprobs
from specdec_core.request import FinishReason

_ROOT = Path(__file__).parent.parent
_ENGINE = "specdec_core"
REFERENCES = _ROOT / "build" / "audit"

Row = dict[str, Any]
References = dict[tuple[int, float], Answer]


class EngineVersion(NamedTuple):
    commit: str
    engine: str
    """Hash of everything in specdec_core."""
    is_changed: bool
    """Whether specdec_core differs from the commit."""


def engine_version() -> EngineVersion:
    engine = hashlib.sha256()
    for path in sorted((_ROOT / _ENGINE).rglob("*.py")):
        engine.update(f"{path.relative_to(_ROOT)}\n".encode() + path.read_bytes())
    return EngineVersion(
        commit=git("rev-parse", "--short", "HEAD"),
        engine=engine.hexdigest()[:12],
        is_changed=bool(git("status", "--porcelain", "--", _ENGINE)),
    )


class ResultLog:
    """The lines of one file that belong to this engine."""

    def __init__(self, path: Path, version: EngineVersion) -> None:
        self.path = path
        self.version = version
        self._rows: dict[str, Row] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            row = json.loads(line)
            if row["engine"] == version.engine:
                self._rows[_key(row["cell"], row["settings"])] = row

    def find(self, cell: str, settings: Mapping[str, Any]) -> Row | None:
        return self._rows.get(_key(cell, settings))

    def add(self, cell: str, settings: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        row = {"cell": cell, **self.version._asdict(), "settings": dict(settings), **result}
        self._rows[_key(cell, settings)] = row
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def _key(cell: str, settings: Mapping[str, Any]) -> str:
    return json.dumps([cell, settings], sort_keys=True)


class ReferenceStore:
    """The reference's answers on disk, so that a resumed audit need not decode them again."""

    def __init__(self, version: EngineVersion, fingerprint: str, settings: Row) -> None:
        facts = json.dumps([version.engine, fingerprint, settings], sort_keys=True)
        self._path = REFERENCES / f"{hashlib.sha256(facts.encode()).hexdigest()[:16]}.json"
        self._num_saved = 0

    def load(self) -> References:
        if not self._path.exists():
            return {}
        return {(row["prompt"], row["temperature"]): _answer(row) for row in self._saved()}

    def _saved(self) -> list[Row]:
        rows: list[Row] = json.loads(self._path.read_text())
        self._num_saved = len(rows)
        return rows

    def save(self, references: Mapping[tuple[int, float], Answer]) -> None:
        """Write all answers if there are new ones, whole or not at all."""
        if len(references) == self._num_saved:
            return
        rows = [_answer_row(*key, answer) for key, answer in references.items()]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_suffix(".new")
        draft.write_text(json.dumps(rows))
        draft.replace(self._path)
        self._num_saved = len(rows)


def _answer_row(prompt: int, temperature: float, answer: Answer) -> Row:
    return {
        "prompt": prompt,
        "temperature": temperature,
        "token_ids": answer.token_ids,
        "finish_reason": answer.finish_reason,
        "logprobs": answer.logprobs,
    }


def _answer(row: Row) -> Answer:
    logprobs = [
        TokenLogprobs(logprob, tuple((token_id, value) for token_id, value in top))
        for logprob, top in row["logprobs"]
    ]
    return Answer(row["token_ids"], logprobs, FinishReason(row["finish_reason"]))
