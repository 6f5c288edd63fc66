"""The commands `specdec bench serve` and `specdec bench offline`."""

from __future__ import annotations

import typer

from deployments.cli.bench.offline_options import BenchOfflineOptions
from deployments.cli.bench.serve_options import BenchServeOptions
from deployments.cli.command import command
from deployments.cli.progress import hide_bars

bench_app = typer.Typer(no_args_is_help=True, help="Measure a running server, or the engine.")


@command(bench_app)
def serve(options: BenchServeOptions) -> None:
    """Load a running server with OpenAI's routes and measure its answers.

    Flags and figures are a part of those of `vllm bench serve`, which measures this server too.
    With speculation a chunk has several tokens, so that ITL comes in bursts: compare TPOT and E2EL.

    Examples:

    `specdec bench serve --random-input-len 128 --num-prompts 64 --max-concurrency 8`

    `specdec bench serve --backend openai-chat --dataset-name copying --repeat 3 --num-warmups 4`

    `specdec bench serve --backend openai-chat --dataset-path p.jsonl --request-rate 2
    --save-result r.json`
    """
    from deployments.cli.bench.serve import run

    run(options)


@command(bench_app)
def offline(options: BenchOfflineOptions) -> None:
    """Measure the engine in this process: every algorithm and draft at every batch size.

    The models are loaded once. After a warm-up every cell runs `--repeat` times, the cells in
    turns, so that what else the machine does hits all alike.

    Examples:

    `specdec bench offline --input prompts.jsonl --sample 16 --batch-sizes 1,8 --save-result r.json`

    `specdec bench offline --input p.jsonl --spec-methods ngram,draft_model --spec-tokens 2,4,8`

    `specdec bench offline Qwen/Qwen3-8B --spec-model Qwen/Qwen3-0.6B --input p.jsonl --plot r.png`
    """
    hide_bars()
    from deployments.cli.bench.offline import run

    run(options)
