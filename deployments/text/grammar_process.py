"""Reads grammars in a process of its own: a grammar may take seconds or gigabytes to read, or end
the process by nesting too deeply.

The process stays, because starting one takes longer than reading an ordinary grammar. It ends when
a grammar exceeds a limit, or when its standard input does.
"""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from deployments.runtime.python_path import python_path
from deployments.text.grammar_library import try_grammar
from deployments.text.grammar_limits import GrammarLimits
from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import GrammarKind, GrammarSpec

_MEMORY_BYTES = 64 * 2**20
"""Memory beyond what the process has before the first grammar."""
_WALL_S = 20.0
"""Time for one grammar on a busy machine, where CPU time passes slowly."""


class GrammarReader:
    """One such process, which starts when the first grammar comes. Use it from one thread."""

    def __init__(self, limits: GrammarLimits) -> None:
        self._limits = limits
        self._process: subprocess.Popen[str] | None = None

    def check(self, spec: GrammarSpec) -> None:
        """Raise InvalidRequestError for a grammar that cannot be read, or costs too much."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        request = {"kind": spec.kind, "source": spec.source, "limits": asdict(self._limits)}
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:
            self.close()
            raise InvalidRequestError(
                "structured output: the grammar is too large or too deeply nested. It "
                f"exceeds max_grammar_seconds={self._limits.max_seconds:g} of CPU time, "
                f"{_MEMORY_BYTES >> 20} MB of memory, or the stack",
                param=spec.param,
            )
        result = json.loads(answer)
        if result["refusal"]:
            raise InvalidRequestError(result["refusal"], param=spec.param, code=result["code"])

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _running(self) -> subprocess.Popen[str]:
        """Return the process; a new one if something ended the last one between two grammars."""
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        return self._start()

    def _start(self) -> subprocess.Popen[str]:
        # Nothing of this process's environment: it may hold API keys.
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PYTHONPATH": python_path()},
            text=True,
        )
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            status = self._process.wait()
            raise RuntimeError(f"the process that reads grammars did not start: status={status!r}")
        return self._process


def answer_all(questions: IO[str], answers: IO[str]) -> None:
    """Say that it is ready, then read a grammar from each line. A timer ends the process where one
    takes too long."""
    try_grammar(GrammarSpec(GrammarKind.REGEX, "a"))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + _MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print("ready", file=answers, flush=True)
    for line in questions:
        request = json.loads(line)
        limits = GrammarLimits(**request["limits"])
        signal.setitimer(signal.ITIMER_PROF, limits.max_seconds)
        signal.setitimer(signal.ITIMER_REAL, _WALL_S)
        answer = _answer(request, limits)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _answer(request: dict[str, Any], limits: GrammarLimits) -> dict[str, str]:
    try:
        try_grammar(GrammarSpec(GrammarKind(request["kind"]), request["source"]), limits)
    except InvalidRequestError as error:
        return {"refusal": str(error), "code": error.code}
    return {"refusal": ""}


if __name__ == "__main__":
    answer_all(sys.stdin, sys.stdout)
