"""The prompts of the model with weights on a running server, vLLM's or SGLang's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.gpu_report.completions import model_of, pace
from benchmarks.gpu_report.questions import question_ids
from benchmarks.gpu_report.real_model import MAX_TOKENS, named_model
from benchmarks.gpu_report.rehearsed import answering
from benchmarks.gpu_report.results import Findings, StepSkippedError
from benchmarks.gpu_report.settings import Settings
from specdec_core.loading.loader import load_tokenizer


def measure(settings: Settings, findings: Findings) -> None:
    with _address(settings) as url, named_model(settings) as (model, _):
        findings.fact("peer", url)
        served = model_of(url)
        findings.fact("model served", served)
        prompts = question_ids(load_tokenizer(model), settings.sizes.num_prompts)
        for rows in settings.sizes.rows_of(len(prompts)):
            bodies = [_body(served, ids, settings) for ids in prompts[:rows]]
            tokens_per_s = [pace(url, bodies) for _ in range(2)][-1]
            findings.row("decoding", rows=rows, tokens_per_s=tokens_per_s)


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
