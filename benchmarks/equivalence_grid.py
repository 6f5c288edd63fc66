"""Every cell of (method, K, batch, temperature) against plain decoding and against generate().

One process loads the models once and runs the cells one after the other; every finished cell is a
line of the result file, and a run that is started again goes on behind the last one.

    python -m benchmarks.equivalence_grid --model smollm2-135m \
        --input spec_bench_240.jsonl --sample 64 --output benchmarks/results/equivalence.jsonl
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.progress import track
from transformers import AutoModelForCausalLM

from deployments.demo_models import resolve_model
from deployments.prompt_file import read_prompt_file, select
from specdec_core import PoolConfig, Request, SamplingParams, SpecMethod, SpeculationConfig
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.models.cached_model import Feed
from specdec_core.models.loading import DType, LoadConfig, LoadedModel, load_model, load_tokenizer
from specdec_core.noise import gumbel, noise_keys

NEAR_TIE = 1e-3
"""float32 passes of other shapes move a logit by less than this: only such a gap may flip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    method: str
    k: int
    batch: int
    temperature: float

    @property
    def name(self) -> str:
        return f"{self.method} K={self.k} B={self.batch} T={self.temperature}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where an output first leaves the reference."""

    request_id: str
    position: int
    top_two_gap: float


def main(
    input: Annotated[Path, typer.Option(help="Prompts, as for `specdec generate`.")],
    output: Annotated[Path, typer.Option(help="JSON lines, one per finished cell.")],
    model: Annotated[str, typer.Option()] = "smollm2-135m",
    sample: Annotated[int, typer.Option(help="Prompts, spread over the categories.")] = 64,
    max_tokens: Annotated[int, typer.Option()] = 128,
    ks: Annotated[str, typer.Option(help="K, separated by commas.")] = "1,4,8",
    batches: Annotated[str, typer.Option(help="Batch sizes.")] = "8,4,1",
    temperatures: Annotated[str, typer.Option()] = "0,0.8",
    methods: Annotated[str, typer.Option()] = "ngram,draft_model",
    reference: Annotated[bool, typer.Option(help="Also compare with generate().")] = True,
    threads: Annotated[int, typer.Option(help="Torch threads.")] = 2,
) -> None:
    """Compare ids cell by cell, in float32; exit 1 if any differs beyond a near tie."""
    torch.set_num_threads(threads)
    folder = str(resolve_model(model))
    target, draft = _load(folder), _load(folder)
    prompts = chat_prompts(folder, input, sample)
    done = {row["name"] for row in _rows(output)}
    plain: dict[float, list[list[int]]] = {}
    cells = [
        Cell(method=method, k=k, batch=batch, temperature=temperature)
        for batch, temperature, method, k in itertools.product(
            _ints(batches), _floats(temperatures), methods.split(","), _ints(ks)
        )
    ]
    is_equal = True
    for cell in track(cells, description="cells"):
        if cell.name in done:
            continue
        requests = _requests(target, prompts, cell.temperature, max_tokens)
        if cell.temperature not in plain:
            plain[cell.temperature] = _plain(target, requests, output, done)
            if reference and cell.temperature == 0 and "generate()" not in done:
                _compare_with_generate(target, requests, plain[cell.temperature], output, folder)
        is_equal &= _run_cell(cell, target, draft, requests, plain[cell.temperature], output)
    raise typer.Exit(0 if is_equal else 1)


def _load(folder: str) -> LoadedModel:
    return load_model(
        folder,
        LoadConfig(dtype=DType.FLOAT32, device="cpu", max_model_len=4096, kv_cache_tokens=65536),
    )


def chat_prompts(folder: str, path: Path, sample: int) -> list[tuple[int, ...]]:
    """First turns through the chat template."""
    tokenizer = load_tokenizer(folder)
    lines = select(read_prompt_file(path), sample=sample)
    return [
        tuple(
            tokenizer.apply_chat_template(
                [{"role": "user", "content": (line.turns or [line.prompt])[0]}],
                add_generation_prompt=True,
                return_dict=True,
            )["input_ids"]
        )
        for line in lines
    ]


def _requests(
    target: LoadedModel, prompts: Sequence[tuple[int, ...]], temperature: float, max_tokens: int
) -> list[Request]:
    return [
        Request(
            request_id=str(index),
            prompt_token_ids=prompt,
            params=SamplingParams(temperature=temperature, seed=index, max_tokens=max_tokens),
            end_token_ids=target.end_token_ids,
        )
        for index, prompt in enumerate(prompts)
    ]


def _plain(
    target: LoadedModel, requests: list[Request], output: Path, done: set[str]
) -> list[list[int]]:
    """Plain decoding, 8 at a time."""
    config = PoolConfig(max_group_size=8, window=8)
    engine = Engine(target.model, config=config, algorithm=AlgorithmName.AUTOREGRESSIVE)
    ids, seconds = _decode(engine, requests)
    name = f"autoregressive B=8 T={requests[0].params.temperature}"
    if name not in done:
        _write(output, {"name": name, **_speed(ids, seconds)})
    return ids


def _run_cell(
    cell: Cell,
    target: LoadedModel,
    draft: LoadedModel,
    requests: list[Request],
    expected: list[list[int]],
    output: Path,
) -> bool:
    speculation = SpeculationConfig(method=SpecMethod(cell.method), num_draft_tokens=cell.k)
    config = PoolConfig(max_group_size=cell.batch, window=3 * cell.batch, speculation=speculation)
    drafts = draft.model if cell.method == SpecMethod.DRAFT_MODEL else None
    engine = Engine(target.model, drafts, config=config)
    ids, seconds = _decode(engine, requests)
    differences = list(_differences(target, requests, ids, expected))
    stats = engine.stats
    _write(
        output,
        {
            "name": cell.name,
            **asdict(cell),
            "num_requests": len(requests),
            "num_equal": len(requests) - len(differences),
            "differences": [asdict(difference) for difference in differences],
            "num_drafted": stats.num_drafted,
            "num_accepted": stats.num_accepted,
            "mean_acceptance_length": stats.mean_acceptance_length,
            "equal_length_groups": stats.num_equal_length_groups / max(stats.num_groups, 1),
            "stage_seconds": stats.seconds,
            **_speed(ids, seconds),
        },
    )
    assert stats.num_accepted > 0, f"{cell.name}: no draft was accepted, so nothing is shown"
    return all(difference.top_two_gap < NEAR_TIE for difference in differences)


def _decode(engine: Engine, requests: Iterable[Request]) -> tuple[list[list[int]], float]:
    started = time.perf_counter()
    ids: dict[str, list[int]] = {request.request_id: [] for request in requests}
    for event in engine.generate(requests):
        ids[event.request_id] += event.token_ids
    return list(ids.values()), time.perf_counter() - started


def _compare_with_generate(
    target: LoadedModel, requests: list[Request], ours: list[list[int]], output: Path, folder: str
) -> None:
    """transformers' own greedy decoding, one sequence at a time."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    theirs = [
        model.generate(
            torch.tensor([request.prompt_token_ids]),
            attention_mask=torch.ones(1, len(request.prompt_token_ids), dtype=torch.long),
            max_new_tokens=request.params.max_tokens,
            do_sample=False,
            eos_token_id=sorted(request.stop_ids),
            pad_token_id=0,
        )[0, len(request.prompt_token_ids) :].tolist()
        for request in track(requests, description="generate()")
    ]
    differences = list(_differences(target, requests, ours, theirs))
    _write(
        output,
        {
            "name": "generate()",
            "num_requests": len(requests),
            "num_equal": len(requests) - len(differences),
            "differences": [asdict(difference) for difference in differences],
        },
    )


def _differences(
    target: LoadedModel,
    requests: list[Request],
    ids: list[list[int]],
    expected: list[list[int]],
) -> Iterator[Difference]:
    for request, mine, right in zip(requests, ids, expected, strict=True):
        if mine != right:
            pairs = zip(mine, right, strict=False)
            same = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(mine), len(right)))
            yield Difference(
                request_id=request.request_id,
                position=same,
                top_two_gap=_top_two_gap(target, request, right[:same]),
            )


def _top_two_gap(target: LoadedModel, request: Request, emitted: list[int]) -> float:
    """Distance between the best and the second best choice behind a prefix, noise included."""
    ids = [*request.prompt_token_ids, *emitted]
    slot = target.model.allocate()
    logits = target.model.score([Feed(slot, ids, 1)])[:, : target.model.vocab_size]
    target.model.free(slot)
    if not request.params.is_greedy:
        keys = noise_keys([(request.params.seed, len(ids))], logits.device)
        vocabulary = torch.arange(logits.shape[1], dtype=torch.int32)
        logits = logits + request.params.temperature * gumbel(keys, vocabulary)
    best, second = logits[0].topk(2).values.tolist()
    return float(best - second)


def _speed(ids: list[list[int]], seconds: float) -> dict[str, float]:
    tokens = sum(len(tokens) for tokens in ids)
    return {"tokens": tokens, "seconds": seconds, "tokens_per_second": tokens / seconds}


def _rows(output: Path) -> list[dict[str, object]]:
    if not output.exists():
        return []
    return [json.loads(line) for line in output.read_text().splitlines()]


def _write(output: Path, row: dict[str, object]) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("a") as file:
        file.write(json.dumps(row) + "\n")
    typer.echo({key: row[key] for key in row if key not in ("stage_seconds", "method", "k")})


def _ints(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _floats(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


if __name__ == "__main__":
    typer.run(main)
