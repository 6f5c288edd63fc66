"""The commands `specdec bench serve` and `specdec bench offline`."""

from __future__ import annotations

import os

import typer

from deployments.cli import options as flag
from deployments.cli.bench import flags as bench_flags
from deployments.cli.bench.names import Backend
from deployments.cli.verify import flags as verify_flags
from specdec_core.config import DEFAULT_GPU_MEMORY_UTILIZATION, KPolicyName, OverlapMode

bench_app = typer.Typer(no_args_is_help=True, help="Measure a running server, or the engine.")


@bench_app.command()
def serve(
    ctx: typer.Context,
    backend: bench_flags.BackendName = Backend.OPENAI,
    base_url: bench_flags.BaseUrl = "http://127.0.0.1:8000",
    model: bench_flags.ServedModel = None,
    api_key: bench_flags.ApiKey = None,
    extra_body: bench_flags.ExtraBody = "{}",
    dataset_name: bench_flags.Dataset = None,
    dataset_path: bench_flags.DatasetPath = None,
    num_prompts: bench_flags.NumPrompts = None,
    random_input_len: bench_flags.InputLen = 1024,
    max_tokens: bench_flags.MaxTokens = 128,
    temperature: flag.Temperature = 0.0,
    ignore_eos: bench_flags.IgnoreEos = False,
    request_rate: bench_flags.RequestRate = float("inf"),
    max_concurrency: bench_flags.MaxConcurrency = None,
    num_warmups: bench_flags.NumWarmups = 0,
    repeat: bench_flags.Repeat = 1,
    seed: bench_flags.Seed = 0,
    save_result: bench_flags.SaveResult = None,
) -> None:
    """Load a running server with OpenAI's routes and measure its answers.

    Flags and figures are a part of those of `vllm bench serve`, which measures this server too.
    With speculation a chunk has several tokens, so that ITL comes in bursts: compare TPOT and E2EL.

    Examples:

    `specdec bench serve --random-input-len 128 --num-prompts 64 --max-concurrency 8`

    `specdec bench serve --backend openai-chat --dataset-name copying --repeat 3 --num-warmups 4`

    `specdec bench serve --backend openai-chat --dataset-path p.jsonl --request-rate 2
    --save-result r.json`
    """
    from deployments.cli.bench import serve as bench_serve

    bench_serve.run(bench_serve.BenchServeOptions(**ctx.params))


@bench_app.command()
def offline(
    ctx: typer.Context,
    input: flag.Input,
    model: flag.Model = flag.DEMO_MODEL,
    algorithms: verify_flags.Algorithms = "autoregressive,exspec",
    batch_sizes: verify_flags.BatchSizes = "1,8",
    spec_methods: bench_flags.SpecMethods = None,
    spec_tokens: bench_flags.SpecTokens = None,
    repeat: bench_flags.OfflineRepeat = 3,
    save_result: bench_flags.SaveCells = None,
    plot: bench_flags.CellsPlot = None,
    window: flag.Window = None,
    limit: flag.Limit = None,
    sample: flag.Sample = None,
    raw_prompt: flag.RawPrompt = False,
    max_tokens: flag.MaxTokens = 128,
    temperature: flag.Temperature = 0.0,
    top_p: flag.TopP = 1.0,
    top_k: flag.TopK = 0,
    min_p: flag.MinP = 0.0,
    seed: flag.Seed = 0,
    ignore_eos: flag.IgnoreEos = False,
    spec_model: flag.SpecModel = None,
    spec_policy: flag.SpecPolicy = KPolicyName.GOODPUT,
    spec_min_confidence: flag.SpecMinConfidence = 0.0,
    overlap: flag.Overlap = OverlapMode.AUTO,
    prompt_lookup_max: flag.LookupMax = None,
    prompt_lookup_min: flag.LookupMin = None,
    dtype: flag.Dtype = "auto",
    device: flag.Device = "auto",
    numerics: flag.Numerics = "auto",
    revision: flag.Revision = None,
    draft_revision: flag.DraftRevision = None,
    chat_template: flag.ChatTemplate = None,
    max_model_len: flag.MaxModelLen = None,
    kv_cache_tokens: flag.KvCacheTokens = None,
    enable_prefix_caching: flag.EnablePrefixCaching = False,
    enforce_eager: flag.EnforceEager = False,
    gpu_memory_utilization: flag.GpuMemoryUtilization = DEFAULT_GPU_MEMORY_UTILIZATION,
) -> None:
    """Measure the engine in this process: every algorithm and draft at every batch size.

    The models are loaded once. After a warm-up every cell runs `--repeat` times, the cells in
    turns, so that what else the machine does hits all alike.

    Examples:

    `specdec bench offline --input prompts.jsonl --sample 16 --batch-sizes 1,8 --save-result r.json`

    `specdec bench offline --input p.jsonl --spec-methods ngram,draft_model --spec-tokens 2,4,8`

    `specdec bench offline Qwen/Qwen3-8B --spec-model Qwen/Qwen3-0.6B --input p.jsonl --plot r.png`
    """
    # Otherwise the libraries that load models draw their own progress bars.
    os.environ.setdefault("TQDM_DISABLE", "1")
    from deployments.cli.bench import offline as bench_offline
    from deployments.cli.bench.offline_options import BenchOfflineOptions

    bench_offline.run(BenchOfflineOptions(**ctx.params))
