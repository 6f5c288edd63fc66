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
    more_goals: bench_flags.MoreGoals = None,
    backend: bench_flags.BackendName = Backend.OPENAI,
    base_url: bench_flags.BaseUrl = None,
    grpc_address: bench_flags.GrpcAddress = None,
    model: bench_flags.ServedModel = None,
    api_key: bench_flags.ApiKey = None,
    extra_body: bench_flags.ExtraBody = "{}",
    dataset_name: bench_flags.Dataset = None,
    dataset_path: bench_flags.DatasetPath = None,
    num_prompts: bench_flags.NumPrompts = None,
    random_input_len: bench_flags.InputLen = 1024,
    random_vocab: bench_flags.RandomVocab = bench_flags.DEFAULT_VOCAB,
    raw_prompt: bench_flags.RawPrompt = False,
    max_tokens: bench_flags.MaxTokens = 128,
    temperature: flag.Temperature = 0.0,
    top_p: bench_flags.TopP = None,
    ignore_eos: bench_flags.IgnoreEos = False,
    request_rate: bench_flags.RequestRate = float("inf"),
    burstiness: bench_flags.Burstiness = 1.0,
    max_concurrency: bench_flags.MaxConcurrency = None,
    num_warmups: bench_flags.NumWarmups = 0,
    repeat: bench_flags.Repeat = 1,
    request_timeout: bench_flags.RequestTimeout = 600.0,
    seed: bench_flags.Seed = 0,
    percentile_metrics: bench_flags.PercentileMetrics = "ttft,tpot,itl,e2el",
    metric_percentiles: bench_flags.MetricPercentiles = "50,90,99",
    goodput: bench_flags.Goodput = None,
    save_result: bench_flags.SaveResult = None,
    save_detailed: bench_flags.SaveDetailed = False,
    plot: bench_flags.SpreadPlot = None,
) -> None:
    """Load a running server (OpenAI's routes of any server, or our gRPC) and measure its answers.

    Flags and figures are those of `vllm bench serve`. With speculation a chunk has several tokens,
    so that ITL comes in bursts: compare TPOT and E2EL.

    Examples:

    `specdec bench serve --random-input-len 128 --num-prompts 64 --max-concurrency 8`

    `specdec bench serve --backend openai-chat --dataset-name spec_bench --dataset-path p.jsonl
    --num-prompts 48 --request-rate 2 --goodput ttft:200 tpot:50 --save-result r.json --plot r.png`

    `specdec bench serve --backend grpc --grpc-address 127.0.0.1:9000 --repeat 3 --num-warmups 4`
    """
    from deployments.cli.bench import serve as bench_serve
    from deployments.cli.bench.serve_options import BenchServeOptions

    goals = bench_flags.goals_of(goodput or (), more_goals or ())
    named = {name: value for name, value in ctx.params.items() if name != "more_goals"}
    bench_serve.run(BenchServeOptions(**{**named, "goodput": goals}))


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
