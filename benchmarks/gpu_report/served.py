"""The service as the plain command starts it: `specdec serve` with a model, then with a draft too.

Token IDs in company are compared with those of each prompt alone and without speculation. Tokens
per second are those of a client on the same machine, with speculation and without, in turns.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.gpu_report.completions import complete, model_of, pace
from benchmarks.gpu_report.environment import ROOT, gpu_memory_used
from benchmarks.gpu_report.questions import question_ids
from benchmarks.gpu_report.real_model import MAX_TOKENS, named_model
from benchmarks.gpu_report.results import Findings, StepSkippedError
from benchmarks.gpu_report.settings import Settings
from benchmarks.harness.ports import free_port, is_up
from specdec_core.loading.loader import load_tokenizer

_SERVE = (sys.executable, "-c", "from deployments.cli.main import main; main()", "serve")
_READY_S, _END_S = 75.0, 30.0
_POLL_S = 0.1
_TURNS = 3
_COMPARED = 8
"""Prompts that are asked alone, too."""

Ids = tuple[int, ...]


def measure(settings: Settings, findings: Findings) -> None:
    if importlib.util.find_spec("ray") is None:
        raise StepSkippedError("Ray is not installed: the service needs it")
    with named_model(settings) as (target, draft):
        prompts = question_ids(load_tokenizer(target), settings.sizes.num_prompts)
        commands = [[target]] if draft is None else [[target], [target, "--spec-model", draft]]
        for command in commands:
            with _service(command, settings) as (url, ready_s):
                way = " ".join(["serve", *map(_short, command)])
                findings.row("service", way=way, ready_s=ready_s, gpu_memory=gpu_memory_used())
                asking = _Asking(url, way, settings)
                asking.compare(prompts, findings)
                asking.measure_speed(prompts, findings)


def _short(argument: str) -> str:
    """A folder's name."""
    return Path(argument).name if Path(argument).is_dir() else argument


class _Asking:
    """A client of one service, which finds none of its prompts cached."""

    def __init__(self, url: str, way: str, settings: Settings) -> None:
        self._url = url
        self._way = way
        self._sizes = settings.sizes
        self._model = model_of(url)
        self._num_asked = 0

    def compare(self, prompts: Sequence[Ids], findings: Findings) -> None:
        """Greedy and sampled prompts in turn."""
        count, length = min(_COMPARED, len(prompts)), self._sizes.answer_len
        together = self._bodies(prompts, length, speculates=True)
        found = complete(self._url, together)[:count]
        alone = self._bodies(prompts[:count], length, speculates=False)
        expected = [complete(self._url, [body])[0] for body in alone]
        findings.fact(f"fingerprint, {self._way}", found[0]["system_fingerprint"])
        findings.row(
            "token IDs",
            what="the service",
            way=self._way,
            rows=len(prompts),
            prompts=count,
            equal=sum(_ids(one) == _ids(other) for one, other in zip(found, expected, strict=True)),
        )

    def measure_speed(self, prompts: Sequence[Ids], findings: Findings) -> None:
        """The first turn warms up; medians of the others count."""
        length = min(MAX_TOKENS, self._sizes.tokens)
        for rows in self._sizes.rows_of(len(prompts)):
            paces: dict[bool, list[float]] = {True: [], False: []}
            for turn in range(1 + _TURNS):
                for speculates in (turn % 2 > 0, turn % 2 == 0):
                    bodies = self._bodies(prompts[:rows], length, speculates=speculates)
                    paces[speculates].append(pace(self._url, bodies))
            on, off = (median(paces[speculates][1:]) for speculates in (True, False))
            findings.row(
                "decoding",
                way=self._way,
                rows=rows,
                tokens_per_s=on,
                without_speculation=off,
                over_without=on / off,
            )

    def _bodies(
        self, prompts: Sequence[Ids], max_tokens: int, *, speculates: bool
    ) -> list[dict[str, Any]]:
        self._num_asked += 1
        return [
            {
                "model": self._model,
                "prompt": list(ids),
                "max_tokens": max_tokens,
                "temperature": 0.8 * (number % 2),
                "seed": number,
                "ignore_eos": True,
                "return_token_ids": True,
                "cache_salt": str(self._num_asked),
                "speculative": {} if speculates else {"enabled": False},
            }
            for number, ids in enumerate(prompts)
        ]


def _ids(answer: dict[str, Any]) -> list[int]:
    ids: list[int] = answer["choices"][0]["token_ids"]
    return ids


@contextmanager
def _service(command: Sequence[str], settings: Settings) -> Iterator[tuple[str, float]]:
    """Its URL, and the seconds until it was ready. It prints into the step's log."""
    port, grpc_port = free_port(), free_port()
    flags = ["--port", str(port), "--grpc-port", str(grpc_port)]
    if settings.is_rehearsal:
        flags += ["--device", "cpu", "--max-model-len", "1024", "--kv-cache-tokens", "4096"]
    started = time.monotonic()
    process = subprocess.Popen([*_SERVE, *command, *flags], cwd=ROOT, env=_variables())
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(process, url, started + _READY_S)
        yield url, time.monotonic() - started
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C does, by force where that is not heard."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _variables() -> dict[str, str]:
    """Return variables that select the code of this checkout, installed or not."""
    found = [str(ROOT), str(ROOT / "proto"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, found))}


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, deadline: float) -> None:
    while not is_up(f"{url}/ready"):
        if process.poll() is not None:
            raise RuntimeError(f"the service ended with {process.returncode}: see the log")
        if time.monotonic() > deadline:
            raise RuntimeError(f"the service is not ready after {_READY_S:.0f} s: see the log")
        time.sleep(_POLL_S)
