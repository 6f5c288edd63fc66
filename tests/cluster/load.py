"""Streams that run beside a step, and what they say of it."""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tests.cluster.deployed import CLIENT_POD, CLIENTS, NAMESPACE

ADDRESS = f"specdec-entry.{NAMESPACE}.svc.cluster.local:8000"
_ENDS_S = 180.0
"""The streams that run when a load is stopped may take so long."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one load."""

    num_answers: int
    num_identical: int
    num_resumed: int
    errors: Mapping[str, int]
    failed_at: tuple[float, ...]
    """When requests failed, Unix seconds."""
    longest_gap_s: float
    longest_first_s: float

    @property
    def figures(self) -> dict[str, Any]:
        return {
            "answers": self.num_answers,
            "identical": self.num_identical,
            "resumed": self.num_resumed,
            "errors": dict(self.errors),
            "longest_gap_s": round(self.longest_gap_s, 2),
            "longest_first_token_s": round(self.longest_first_s, 2),
        }

    @property
    def when_failed(self) -> str:
        """UTC, as the logs of the service say it."""
        ends = sorted({min(self.failed_at), max(self.failed_at)}) if self.failed_at else []
        return " to ".join(datetime.fromtimestamp(t, UTC).strftime("%H:%M:%S") for t in ends)

    @property
    def wrong(self) -> int:
        """Answers that are not the offline ones."""
        return self.num_answers - self.num_identical


class Load:
    """A context: it asks from its beginning to its end; then `verdict` is there."""

    def __init__(
        self, key: str, expected: Sequence[Sequence[int]], workers: int = 4, resume: bool = False
    ) -> None:
        self.name = "resuming" if resume else "plain"
        self._expected = expected
        script = ["python3", "-u", "/client/load.py", "--address", ADDRESS, "--key", key]
        script += ["--questions", "/client/questions.jsonl", "--workers", str(workers)]
        self._command = ["kubectl", "--namespace", CLIENTS, "exec", "-i", CLIENT_POD, "--"]
        self._command += [*script, "--resume"] if resume else script
        self.outcomes: list[dict[str, Any]] = []

    def __enter__(self) -> Load:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None, "it was opened with one"
        self._process.stdin.close()
        self._reader.join(_ENDS_S)
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None, "it was opened with one"
        for line in self._process.stdout:
            if line.startswith("{"):
                self.outcomes.append(json.loads(line))

    @property
    def num_answers(self) -> int:
        return len(self.outcomes)

    @property
    def verdict(self) -> Verdict:
        failed = [one for one in self.outcomes if one["error"] is not None]
        answered = [one for one in self.outcomes if one["error"] is None]
        is_right = [one["token_ids"] == list(self._expected[one["question"]]) for one in answered]
        return Verdict(
            num_answers=len(answered),
            num_identical=sum(is_right),
            num_resumed=sum(one["num_resumes"] > 0 for one in answered),
            errors=Counter(one["error"][:120] for one in failed),
            failed_at=tuple(one["ended"] for one in failed),
            longest_gap_s=max((one["gap_s"] for one in self.outcomes), default=0.0),
            longest_first_s=max((one["first_s"] or 0.0 for one in self.outcomes), default=0.0),
        )
