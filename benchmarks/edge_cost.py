"""CPU time of each process of a service for every token that it streams.

The target is a small random Llama with the demo's tokenizer: its rounds are short, so that the edge
has as many as a fast accelerator would give it. Every round's tokens are a message, a chunk and a
write of their own, unless --stream-interval or the load says otherwise.

    python -m benchmarks.edge_cost --output edge_cost.json
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.harness.load import load
from benchmarks.harness.machine import cpu_name
from benchmarks.harness.processes import TITLES, Kind
from benchmarks.harness.starting import service
from benchmarks.wire_cost import cpu_by_process
from deployments.config import ServiceConfig
from deployments.demo_models import resolve_model
from deployments.generate.prompt_file import PromptLine
from specdec_core.config import SpecMethod

_DEMO = "smollm2-135m"
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
_EDGE = {
    "ingress": TITLES[Kind.INGRESS],
    "proxy": TITLES[Kind.PROXY],
    "haproxy": "haproxy",
    "coordinator": TITLES[Kind.COORDINATOR],
}
"""What is neither the model's nor Ray's own, by the titles of the processes."""
_WARM_UP_TOKENS = 64
_BODY = {"ignore_eos": True}


def main(
    streams: Annotated[int, typer.Option(help="At a time.")] = 8,
    requests: Annotated[int, typer.Option(help="Of each turn.")] = 64,
    turns: int = 3,
    max_tokens: int = 128,
    layers: Annotated[int, typer.Option(help="Of the target: its pace.")] = 24,
    stream_interval: Annotated[int | None, typer.Option(help="As of `specdec serve`.")] = None,
    port: int = 8123,
    output: Path | None = None,
) -> None:
    """Measure, print medians over the turns, write everything to --output."""
    with _small_target(layers) as folder:
        settings = {} if stream_interval is None else {"stream_interval": stream_interval}
        config = ServiceConfig(
            model=str(folder),
            spec_method=SpecMethod.NONE,
            max_group_size=streams,
            torch_threads=1,
            port=port,
            grpc_port=port + 1000,
            **settings,
        )
        with service(config) as process:
            load(config, _lines(streams), _WARM_UP_TOKENS, _BODY)
            found = [
                _turn(config, process.pid, _lines(requests), max_tokens, streams)
                for _ in range(turns)
            ]
    told = {
        "streams": streams,
        "max_tokens": max_tokens,
        "layers": layers,
        "stream_interval": stream_interval,
        "processor": cpu_name(),
        **_over_turns(found),
    }
    _print(told)
    if output is not None:
        output.write_text(json.dumps({**told, "turns": found}, indent=1) + "\n")


@contextmanager
def _small_target(layers: int) -> Iterator[Path]:
    """A folder with random weights, narrow and deep: a pass takes 0.2 ms a layer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    demo = resolve_model(_DEMO)
    vocab_size = json.loads((Path(demo) / "config.json").read_text())["vocab_size"]
    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=2048,
        initializer_range=0.15,
        bos_token_id=1,
        eos_token_id=2,
    )
    with tempfile.TemporaryDirectory() as folder:
        LlamaForCausalLM(shape).save_pretrained(folder)
        for name in _TOKENIZER:
            if (Path(demo) / name).is_file():
                shutil.copy(Path(demo) / name, folder)
        yield Path(folder)


def _lines(count: int) -> list[PromptLine]:
    words = "Tell me a story about ship number {} and the people who sailed it."
    return [PromptLine(line_number=i, turns=[words.format(i)]) for i in range(count)]


def _turn(
    config: ServiceConfig, pid: int, lines: Sequence[PromptLine], max_tokens: int, streams: int
) -> dict[str, Any]:
    before = cpu_by_process(pid)
    run = load(config, lines, max_tokens, _BODY, max_concurrency=streams)
    spent = cpu_by_process(pid)
    spent.subtract(before)
    num_tokens = run.num_output
    return {
        "tokens_per_second": num_tokens / run.duration_s,
        "tokens_per_chunk": num_tokens / sum(len(record.chunk_s) for record in run.records),
        "cpu_ms_per_token": _by_process(spent, num_tokens),
    }


def _by_process(spent: Counter[str], num_tokens: int) -> dict[str, float]:
    per_token = {name: 1000 * seconds / num_tokens for name, seconds in spent.items()}
    edge = {
        part: sum(ms for name, ms in per_token.items() if name.startswith(title))
        for part, title in _EDGE.items()
    }
    others = {
        name: ms
        for name, ms in per_token.items()
        if ms >= 0.001 and not name.startswith(tuple(_EDGE.values()))
    }
    return {"edge": sum(edge.values()), **edge, **others}


def _over_turns(turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Medians."""
    names = {name: None for turn in turns for name in turn["cpu_ms_per_token"]}
    return {
        **{
            key: median([turn[key] for turn in turns])
            for key in ("tokens_per_second", "tokens_per_chunk")
        },
        "cpu_ms_per_token": {
            name: median([turn["cpu_ms_per_token"].get(name, 0.0) for turn in turns])
            for name in names
        },
    }


def _print(told: Mapping[str, Any]) -> None:
    table = Table("process", "CPU ms per token")
    for name, ms in told["cpu_ms_per_token"].items():
        table.add_row(name, f"{ms:.3f}")
    console = Console()
    console.print(table)
    console.print(
        f"{told['streams']} streams, {told['tokens_per_second']:.0f} tokens/s, "
        f"{told['tokens_per_chunk']:.2f} tokens a chunk; {told['processor']}",
        highlight=False,
    )


if __name__ == "__main__":
    typer.run(main)
