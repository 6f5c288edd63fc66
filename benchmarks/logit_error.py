"""How far exact bfloat16 logits lie from transformers' float32 ones, beside its own bfloat16 ones.

Exactness could be had by a common wrong path; this shows that the path is right.

    python -m benchmarks.logit_error --input spec_bench_240.jsonl --output benchmarks/results/F.json
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import track
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from benchmarks.harness.commands import write_json
from deployments.cli.generate.prompt_file import read_prompt_file, select
from deployments.cli.generate.prompt_text import encode_line
from deployments.demo.models import resolve_model
from deployments.text.tokenizer import load_text_model
from specdec_core.config import Numerics
from specdec_core.loading.loader import DType, LoadConfig, load_model
from specdec_core.model import score


def main(
    input: Annotated[Path, typer.Option(help="Prompts, as for `specdec generate`.")],
    model: Annotated[str, typer.Option(help="Folder, hub id or demo name.")] = "smollm2-135m",
    sample: Annotated[int, typer.Option(help="Prompts.")] = 32,
    max_len: Annotated[int, typer.Option(help="Tokens of a prompt that are scored.")] = 256,
    output: Annotated[Path | None, typer.Option(help="JSON file.")] = None,
) -> None:
    """Score the prompts three ways and print both root mean square errors."""
    folder = resolve_model(model)
    config = LoadConfig(dtype=DType.BFLOAT16, numerics=Numerics.EXACT, kv_cache_tokens=8192)
    exact = load_model(folder, config).model
    references = {dtype: _reference(folder, dtype) for dtype in (torch.float32, torch.bfloat16)}
    text = load_text_model(folder)
    errors: dict[str, list[float]] = {"exact": [], "transformers": []}
    for line in track(select(read_prompt_file(input), limit=None, sample=sample)):
        ids = list(encode_line(text, line, is_raw=False))[:max_len]
        right = _logits(references[torch.float32], ids)
        slot = exact.allocate()
        ours = score(exact, [(slot, ids, len(ids))]).float()
        exact.free(slot)
        errors["exact"].append(_rms(ours - right))
        errors["transformers"].append(_rms(_logits(references[torch.bfloat16], ids) - right))
    result = {name: statistics.fmean(values) for name, values in errors.items()}
    result["ratio"] = result["exact"] / result["transformers"]
    record = {"model": model, "prompts": sample, "max_len": max_len, "rms_error": result}
    Console().print(record)
    write_json(record, output)


def _reference(folder: str, dtype: torch.dtype) -> PreTrainedModel:
    loaded: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    return loaded.eval()


@torch.inference_mode()
def _logits(model: PreTrainedModel, ids: list[int]) -> Tensor:
    logits: Tensor = model(input_ids=torch.tensor([ids])).logits[0].float()
    return logits


def _rms(difference: Tensor) -> float:
    return float(difference.square().mean().sqrt())


if __name__ == "__main__":
    typer.run(main)
