"""What serving costs: tokens per second of a service beside those of the engine that it runs.

Both decode the same conversations at the same batch and with the same threads, in turns; while the
engine runs, every process of the service is stopped. A ratio belongs to one turn, so that what else
the machine does weighs on both sides.

    python -m benchmarks.served_vs_engine --input spec_bench_240.jsonl --spec-method ngram
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import psutil
import torch
import typer
from rich.console import Console
from rich.progress import track

from benchmarks.harness.load import load
from benchmarks.harness.machine import stolen_share
from benchmarks.harness.starting import ServerProcess, service
from deployments.config import ServiceConfig
from deployments.demo_models import resolve_model
from deployments.generate.prompt_file import PromptLine, read_prompt_file, select
from deployments.generate.prompt_text import encode_line
from deployments.text.model import TextModel, load_text_model
from specdec_core import Engine, Request, SamplingParams
from specdec_core.config import SpecMethod
from specdec_core.models.loading import LoadConfig

_PAUSE_S = 1.0
"""Between two sides, so that neither pays for the end of the other."""
_WARM_UP_TOKENS = 16


def main(
    input: Annotated[Path, typer.Option(help="JSON lines with turns: Spec-Bench.")],
    batch: Annotated[int, typer.Option(help="Streams at a time, and rows of a group.")] = 16,
    turns: Annotated[int, typer.Option(help="Batches that each side decodes.")] = 6,
    max_tokens: int = 128,
    threads: Annotated[int, typer.Option(help="Torch threads of each side.")] = 2,
    spec_method: SpecMethod = SpecMethod.NGRAM,
    model: str = "smollm2-135m",
    port: int = 8123,
    output: Path | None = None,
) -> None:
    """Measure, print the turns, write them to --output."""
    lines = select(read_prompt_file(input), sample=batch * turns)
    batches = [lines[turn::turns] for turn in range(turns)]
    config = ServiceConfig(
        model=model,
        spec_method=spec_method,
        max_num_seqs=batch,
        window=max(32, batch),
        torch_threads=threads,
        port=port,
        grpc_port=port + 1000,
    )
    with service(config) as process:
        engine = _EngineSide(config)
        sides = (engine, _ServiceSide(config))
        _turn(process, sides, batches[0], _WARM_UP_TOKENS)
        measured = [
            _turn(process, sides, part, max_tokens) for part in track(batches, description="turns")
        ]
    found = {
        "model": model,
        "batch": batch,
        "max_tokens": max_tokens,
        "threads": threads,
        "method": spec_method,
        "environment": {n: v for n, v in os.environ.items() if n.startswith(("RAY_", "GOMP"))},
        "turns": measured,
        "median_ratio": statistics.median(turn["ratio"] for turn in measured),
        "engine_tokens_per_second": _rate(measured, "engine"),
        "service_tokens_per_second": _rate(measured, "service"),
    }
    text = json.dumps(found, indent=2)
    Console().print_json(text)
    if output is not None:
        output.write_text(text + "\n")


def _turn(
    process: ServerProcess,
    sides: tuple[_EngineSide, _ServiceSide],
    lines: Sequence[PromptLine],
    max_tokens: int,
) -> dict[str, Any]:
    engine, served = sides
    with _stopped(process):
        engine_tokens, engine_s, from_engine = _read(engine, lines, max_tokens)
    served_tokens, served_s, from_service = _read(served, lines, max_tokens)
    assert engine_tokens == served_tokens, "the service and the engine decode other tokens"
    return {
        "tokens": engine_tokens,
        "engine_s": engine_s,
        "service_s": served_s,
        "ratio": engine_s / served_s,
        "stolen_from_engine": from_engine,
        "stolen_from_service": from_service,
    }


def _read(
    side: _EngineSide | _ServiceSide, lines: Sequence[PromptLine], max_tokens: int
) -> tuple[int, float, float]:
    """Tokens, seconds, and the share of the machine that its host gave to others: noise."""
    before = psutil.cpu_times()
    num_tokens, seconds = side.decode(lines, max_tokens)
    return num_tokens, seconds, stolen_share(before, psutil.cpu_times())


def _rate(turns: Sequence[dict[str, Any]], side: str) -> float:
    return float(sum(t["tokens"] for t in turns) / sum(t[f"{side}_s"] for t in turns))


class _EngineSide:
    """The engine, loaded as `specdec generate` loads it."""

    def __init__(self, config: ServiceConfig) -> None:
        if config.torch_threads is not None:
            torch.set_num_threads(config.torch_threads)
        folder = resolve_model(config.model)
        draft = resolve_model(config.draft) if config.draft else None
        self._text: TextModel = load_text_model(folder)
        self._engine = Engine.load(folder, draft, pool=config.pool_config(), load=LoadConfig())
        self._num_requests = 0

    def decode(self, lines: Sequence[PromptLine], max_tokens: int) -> tuple[int, float]:
        requests = [self._request(line, max_tokens) for line in lines]
        started = time.perf_counter()
        num_tokens = sum(len(event.token_ids) for event in self._engine.generate(requests))
        return num_tokens, time.perf_counter() - started

    def _request(self, line: PromptLine, max_tokens: int) -> Request:
        self._num_requests += 1
        return Request(
            request_id=str(self._num_requests),
            prompt_token_ids=encode_line(self._text, line, is_raw=False),
            params=SamplingParams(temperature=0.0, max_tokens=max_tokens),
            end_token_ids=self._engine.end_token_ids,
        )


class _ServiceSide:
    """As many streams as lines, over HTTP."""

    def __init__(self, config: ServiceConfig) -> None:
        self._config = config

    def decode(self, lines: Sequence[PromptLine], max_tokens: int) -> tuple[int, float]:
        run = load(self._config, lines, max_tokens)
        return run.num_output, run.duration_s


@contextmanager
def _stopped(service: ServerProcess) -> Iterator[None]:
    """None of the service's processes runs inside."""
    processes = service.members()
    for process in processes:
        process.suspend()
    time.sleep(_PAUSE_S)
    try:
        yield
    finally:
        for process in reversed(processes):
            process.resume()
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    typer.run(main)
