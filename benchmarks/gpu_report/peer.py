"""The prompts of the model with weights on a running server, vLLM's or SGLang's, over its
OpenAI-compatible HTTP. Prompts travel as token IDs; answers are counted by the server."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from benchmarks.gpu_report.questions import question_ids
from benchmarks.gpu_report.real_model import MAX_TOKENS, named_model
from benchmarks.gpu_report.rehearsed import answering
from benchmarks.gpu_report.results import Findings, StepSkippedError
from benchmarks.gpu_report.settings import Settings
from specdec_core.models.loading import load_tokenizer

_TIMEOUT_S = 50.0


def measure(settings: Settings, findings: Findings) -> None:
    with _address(settings) as url, named_model(settings) as (model, _):
        findings.fact("peer", url)
        served = _asked(f"{url}/v1/models")["data"][0]["id"]
        findings.fact("model served", served)
        prompts = question_ids(load_tokenizer(model), settings.sizes.num_prompts)
        for rows in [rows for rows in settings.sizes.rows if rows <= len(prompts)]:
            bodies = [_body(served, ids, settings) for ids in prompts[:rows]]
            num_tokens, seconds = [answers(url, bodies) for _ in range(2)][-1]
            findings.row("decoding", rows=rows, tokens_per_s=num_tokens / seconds)


@contextmanager
def _address(settings: Settings) -> Iterator[str]:
    if settings.peer is not None:
        yield settings.peer.rstrip("/").removesuffix("/v1")
    elif settings.is_rehearsal:
        with answering() as url:
            yield url
    else:
        raise StepSkippedError("no --peer was given")


def _body(model: str, ids: tuple[int, ...], settings: Settings) -> dict[str, Any]:
    return {
        "model": model,
        "prompt": list(ids),
        "max_tokens": min(MAX_TOKENS, settings.sizes.tokens),
        "temperature": 0,
        "ignore_eos": True,
    }


def answers(url: str, bodies: list[dict[str, Any]]) -> tuple[int, float]:
    """All at once: tokens that the server has counted, and seconds, prefill among them."""
    with ThreadPoolExecutor(len(bodies)) as threads:
        started = time.perf_counter()
        found = list(threads.map(lambda body: _asked(f"{url}/v1/completions", body), bodies))
        seconds = time.perf_counter() - started
    return sum(answer["usage"]["completion_tokens"] for answer in found), seconds


def _asked(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
        found: dict[str, Any] = json.load(response)
    return found
