"""A model with weights: token IDs against plain decoding of each prompt alone, and tokens per
second with the proposals that its prompts earn."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.gpu_report.arranged import Way, decode, engine
from benchmarks.gpu_report.exactness import write_equal
from benchmarks.gpu_report.questions import question_ids
from benchmarks.gpu_report.rehearsed import write_random_model
from benchmarks.gpu_report.results import Findings, StepSkippedError
from benchmarks.gpu_report.settings import Settings, Sizes
from specdec_core import Request, SamplingParams, SpecMethod
from specdec_core.config import KPolicyName
from specdec_core.loading.loader import LoadConfig, LoadedPair, load_pair, load_tokenizer

_DEMO = "smollm2-135m"
_MAX_LEN = 1024
_REHEARSED_TOKENS = 4096
MAX_TOKENS = 64
"""Of an answer; few where a rehearsal asks."""


def measure(settings: Settings, findings: Findings) -> None:
    with named_model(settings) as (target, draft):
        findings.fact("target", target)
        findings.fact("draft", draft)
        loaded = load_pair(target, draft, _load_config(settings))
        prompts = question_ids(load_tokenizer(target), settings.sizes.num_prompts)
    findings.fact("numerics", str(loaded.target.model.numerics))
    findings.fact("fingerprint", loaded.target.fingerprint)
    _judge_ids(loaded, prompts, settings, findings)
    _measure_speed(loaded, prompts, settings, findings)


@contextmanager
def named_model(settings: Settings) -> Iterator[tuple[str, str | None]]:
    """Target and draft, as folders or hub IDs: those asked for, random ones, or the demo model."""
    if settings.model is not None:
        yield settings.model, settings.draft
    elif settings.is_rehearsal or settings.has_random_model:
        with TemporaryDirectory() as scratch:
            write_random_model(Path(scratch), settings.sizes.draft, settings.sizes.dtype)
            yield scratch, None
    else:
        folder = demo_folder()
        draft = folder.with_name(f"{_DEMO}-draft")
        yield str(folder), str(draft) if draft.is_dir() else None


def demo_folder() -> Path:
    home = Path(os.environ.get("SPECDEC_HOME") or Path.home() / ".cache" / "specdec")
    folder = home / "models" / _DEMO
    if not folder.is_dir():
        raise StepSkippedError(
            f"no --model was given, and the demo model is not here "
            f"(`specdec models pull {_DEMO}` puts it into {folder}; --random-model needs none)"
        )
    return folder


def _load_config(settings: Settings) -> LoadConfig:
    tokens = _REHEARSED_TOKENS if settings.is_rehearsal else None
    return LoadConfig(
        device=settings.device,
        max_model_len=min(_MAX_LEN, tokens or _MAX_LEN),
        kv_cache_tokens=tokens,
        enable_prefix_caching=False,
    )


def requests_of(prompts: Sequence[tuple[int, ...]], max_tokens: int) -> list[Request]:
    """Greedy and sampled in turn."""
    return [
        Request(
            request_id=str(number),
            prompt_token_ids=prompt,
            params=SamplingParams(
                temperature=0.8 * (number % 2), seed=number, max_tokens=max_tokens, ignore_eos=True
            ),
        )
        for number, prompt in enumerate(prompts)
    ]


def _ways(sizes: Sizes, has_draft: bool) -> list[Way]:
    methods = [SpecMethod.NGRAM]
    methods += [SpecMethod.DRAFT_MODEL, SpecMethod.HYBRID] if has_draft else []
    return [Way(rows=rows, method=method) for rows in sizes.batches for method in methods]


def _judge_ids(
    loaded: LoadedPair, prompts: list[tuple[int, ...]], settings: Settings, findings: Findings
) -> None:
    target, draft = loaded.target, loaded.draft
    requests = requests_of(prompts, settings.sizes.answer_len)
    reference = decode(engine(Way(rows=1), target.model, None), requests).answers
    for way in _ways(settings.sizes, draft is not None):
        found = decode(engine(way, target.model, draft.model if draft else None), requests)
        write_equal(findings, "model with weights", way, reference, found, target.model.numerics)


def _measure_speed(
    loaded: LoadedPair, prompts: list[tuple[int, ...]], settings: Settings, findings: Findings
) -> None:
    """Greedy answers of one length; the second of two runs counts."""
    sizes, target, draft = settings.sizes, loaded.target.model, loaded.draft
    method = SpecMethod.NGRAM if draft is None else SpecMethod.DRAFT_MODEL
    for rows in sizes.rows_of(len(prompts)):
        requests = requests_of(prompts[:rows], min(MAX_TOKENS, sizes.tokens))
        fast = Way(rows=rows, method=method, k=sizes.max_k, policy=KPolicyName.GOODPUT)
        for way in (Way(rows=rows), fast):
            runs = [
                decode(engine(way, target, draft.model if draft else None), requests)
                for _ in range(2)
            ]
            findings.row(
                "decoding",
                way=way.name,
                rows=rows,
                tokens_per_s=runs[-1].tokens_per_second,
                mean_k=runs[-1].mean_k,
                acceptance_length=runs[-1].stats.mean_acceptance_length,
            )
