"""Flags of `specdec serve`.

`serve` passes a flag that was not given as None. File, environment or default then decide.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from specdec_core.config import DType, KPolicyName, OverlapMode
from specdec_core.speculation.registry import spec_methods


def one_of(*known: str) -> Callable[[str | None], str | None]:
    """Return a callback that refuses any other value, if one is given."""

    def callback(value: str | None) -> str | None:
        if value is not None and value not in known:
            raise typer.BadParameter(f"{value!r} is none of {', '.join(known)}")
        return value

    return callback


_input_file = partial(typer.Option, exists=True, dir_okay=False, readable=True)
_speculation = partial(typer.Option, rich_help_panel="Speculation")
_model = partial(typer.Option, rich_help_panel="Model")
_scale = partial(typer.Option, rich_help_panel="Scale")
_address = partial(typer.Option, rich_help_panel="Address")

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="Folder, hub id or name of a pulled demo model.")
]

Window = Annotated[
    int | None,
    _scale(min=1, help="Most admitted sequences per target replica [2 x --max-num-seqs]."),
]


SpecMethodName = Annotated[
    str | None,
    _speculation(
        metavar=f"[{'|'.join(spec_methods())}]",
        callback=one_of(*spec_methods()),
        help="Who drafts [draft_model with --spec-model, else ngram: prompt lookup].",
    ),
]
SpecModel = Annotated[
    str | None,
    _speculation(metavar="PATH_OR_ID", help="Draft model; may be the target itself."),
]
SpecTokens = Annotated[
    int | None,
    _speculation(
        metavar="K",
        help="Maximum drafted tokens per sequence and round, 0 to 32; 0 drafts nothing. Default: "
        "15 on CPUs and 8 on GPUs with --spec-policy goodput, else 4.",
    ),
]
SpecPolicy = Annotated[
    KPolicyName | None,
    _speculation(
        help="Policy that chooses the drafted tokens of a round, up to --spec-tokens [goodput]. "
        "`goodput` drafts as many as are measured to pay, 0 included. `schedule` goes by live "
        "sequences (spec_schedule). `fixed` always drafts --spec-tokens, for experiments.",
    ),
]
SpecMinConfidence = Annotated[
    float | None,
    _speculation(
        metavar="P",
        help="A draft model proposes only tokens that it gives at least this probability.",
    ),
]
Overlap = Annotated[
    OverlapMode | None,
    _speculation(
        help="Verify one half of the sequences while the draft model works for the other; auto: "
        "where that is measured to be faster. The tokens are the same.",
    ),
]
LookupMax = Annotated[
    int | None,
    _speculation(
        min=1, help="Longest n-gram that is looked up. Default: 8, 4 unless K is by goodput."
    ),
]
LookupMin = Annotated[
    int | None,
    _speculation(
        min=1, help="Shortest n-gram that is looked up. Default: 1, 2 unless K is by goodput."
    ),
]
SpeculativeConfig = Annotated[
    str | None,
    _speculation(
        metavar="JSON",
        help='As in vLLM: {"method": ..., "model": ..., "num_speculative_tokens": ...}.',
    ),
]
SpecMetrics = Annotated[
    str | None,
    _speculation(metavar="[none|summary]", help="What a response tells of speculation."),
]

Dtype = Annotated[
    str | None,
    _model(
        metavar="[auto|bfloat16|float16|float32]",
        callback=one_of(*DType),
        help="Numbers of weights and KV; auto: as the checkpoint says.",
    ),
]
Device = Annotated[str | None, _model(help="auto (cuda when there is one), cpu or cuda[:N].")]
Numerics = Annotated[
    str | None,
    _model(
        metavar="[auto|exact|fast]",
        callback=one_of("auto", "exact", "fast"),
        help="exact: the ids of plain decoding, whatever the batch; refused where this machine or "
        "model cannot keep it. auto: exact where it can be kept, and on a GPU where passes take at "
        "most 10 % longer. fast: near ties may differ.",
    ),
]
Revision = Annotated[str | None, _model(help="Branch, tag or commit of the target's hub id.")]
DraftRevision = Annotated[str | None, _model(help="Branch, tag or commit of the draft's hub id.")]
ChatTemplate = Annotated[
    Path | None,
    _model(exists=True, dir_okay=False, help="Jinja chat template instead of the model's own."),
]
SpecialTokens = Annotated[
    str | None,
    _model(
        metavar="[allow|plain|refuse]",
        callback=one_of("allow", "plain", "refuse"),
        help="Treatment of control tokens in the texts of a conversation, such as <|im_end|>. "
        "`allow` (default) reads them as control tokens, `plain` as ordinary text. "
        "`refuse` answers 400.",
    ),
]
ToolCallParser = Annotated[
    str | None,
    _model(
        metavar="NAME",
        help="Format of tool calls, by vLLM's name, such as `hermes`. `auto` (default) chooses it "
        "by the model's files. `none` reads no calls. An unknown name lists all names.",
    ),
]
ReasoningParser = Annotated[
    str | None,
    _model(
        metavar="NAME",
        help="Format of reasoning, by vLLM's name, such as `qwen3`. `auto` (default) chooses it by "
        "the model's files. `none` leaves reasoning in the content. An unknown name lists all "
        "names.",
    ),
]
EnableAutoToolChoice = Annotated[
    bool | None,
    typer.Option("--enable-auto-tool-choice", hidden=True, help="Accepted from vLLM; always on."),
]
MaxModelLen = Annotated[
    int | None, _model(min=2, help="Most tokens of a sequence, prompt included.")
]
KvCacheTokens = Annotated[
    int | None, _model(min=64, help="Tokens that one KV cache holds [by free memory].")
]

EnablePrefixCaching = Annotated[
    bool | None,
    _model(
        "--enable-prefix-caching/--no-enable-prefix-caching",
        help="Prompts that begin alike share what is cached of them.",
    ),
]

GpuMemoryUtilization = Annotated[
    float | None, _model(help="Share of a GPU that weights and cache take, at most 1.")
]

TargetNumGpus = Annotated[
    float | None, _scale(help="GPUs of one target replica, also a part of one [what there is].")
]
DraftNumGpus = Annotated[float | None, _scale(help="GPUs of one draft replica [what there is].")]

EnforceEager = Annotated[
    bool | None,
    _model(
        "--enforce-eager/--no-enforce-eager",
        help="PyTorch's operations one by one: no compiled kernels, no recorded passes.",
    ),
]

ConfigFile = Annotated[Path | None, _input_file(help="YAML file of settings; flags win over it.")]
PrintConfig = Annotated[
    bool, typer.Option("--print-config", help="Print the serveConfigV2 text and stop.")
]
LogFormat = Annotated[
    str | None,
    _address(metavar="[text|json]", help="json: a log line is an object, with trace and request."),
]
RequestLog = Annotated[
    bool | None,
    _address(
        "--request-log/--no-request-log",
        help="Log one line for every request: key name, tokens, times, end; never its text. "
        "Default: on.",
    ),
]
ServedModelName = Annotated[str | None, _model(help="Name in requests [the last part of MODEL].")]
Host = Annotated[str | None, _address(help="Address to listen on.", show_default="127.0.0.1")]
Port = Annotated[int | None, _address(help="HTTP port.", show_default="8000")]
GrpcPort = Annotated[int | None, _address(help="gRPC port.", show_default="9000")]
ApiKey = Annotated[
    str | None, _address(help="Key that clients must send; separate several by commas.")
]
ApiKeyFile = Annotated[Path | None, _address(help="Lines of a name and a key.")]
MetricsApiKey = Annotated[
    str | None,
    _address(
        metavar="KEY", help="Key that reads the figures of all API keys on /metrics, nothing else."
    ),
]
CorsOrigins = Annotated[
    str | None,
    _address(
        metavar="ORIGINS",
        help="Origins of web pages that may call the server, separated by commas; * for all. "
        "Default: none.",
    ),
]
AllowedHosts = Annotated[
    str | None,
    _address(
        metavar="NAMES",
        help="Host names that a server on a loopback address answers besides localhost, separated "
        "by commas; * for all.",
    ),
]
CoordinatorTlsCert = Annotated[
    Path | None,
    _address(resolve_path=True, help="PEM certificate for the streams between processes: TLS."),
]
CoordinatorTlsKey = Annotated[Path | None, _address(resolve_path=True, help="Its key.")]
CoordinatorTlsCa = Annotated[
    Path | None,
    _address(resolve_path=True, help="Authority that has signed the certificates of all sides."),
]
MaxConcurrentPerKey = Annotated[
    int | None, _address(metavar="N", help="Requests of one key that may run or wait at a time.")
]
RequestsPerMinutePerKey = Annotated[
    int | None, _address(metavar="N", help="Requests of one key in a minute.")
]
MetricsCompat = Annotated[
    str | None,
    _model(metavar="[none|vllm]", help="Whose names /metrics has besides our own."),
]
UnknownFields = Annotated[
    str | None,
    _model(
        metavar="[warn|refuse]",
        help="Unknown request fields: ignored with a warning (`warn`, the default), or refused.",
    ),
]
GenerationConfig = Annotated[
    str | None,
    _model(
        metavar="[auto|none]",
        help="Whether the model's generation_config.json says what requests leave open.",
    ),
]
TargetReplicas = Annotated[int | None, _scale(help="Replicas of the target model, in every cell.")]
MinTargetReplicas = Annotated[int | None, _scale(help="Fewest of them: their number scales.")]
MaxTargetReplicas = Annotated[int | None, _scale(help="Most of them.")]
DraftReplicas = Annotated[
    int | None,
    _scale(
        help="Replicas of the draft model in every cell [1 with --spec-model]. For a demo model "
        "this starts the draft that ships with it."
    ),
]
MinDraftReplicas = Annotated[int | None, _scale(help="Fewest of them, 0 too: they scale.")]
MaxDraftReplicas = Annotated[int | None, _scale(help="Most of them.")]
IngressReplicas = Annotated[int | None, _scale(help="Replicas that take requests.")]
ReadyTimeout = Annotated[
    float | None,
    _address("--ready-timeout", metavar="SECONDS", help="Give up when nothing answers by then."),
]
Cells = Annotated[int | None, _scale(help="Coordinators, each with replicas of its own.")]
MaxNumSeqs = Annotated[
    int | None,
    _scale(
        min=1,
        help="Most sequences per target pass (the batch) [as many as gain on a CPU, at most 64; "
        "128 on a GPU].",
    ),
]
MaxGroupSize = Annotated[int | None, _scale(hidden=True, help="Old name of --max-num-seqs.")]
MaxPrefillTokens = Annotated[
    int | None,
    _scale(help="Most prompt tokens that streams of a target wait for; 256, on GPUs 8192."),
]
MaxQueued = Annotated[int | None, _scale(help="Most waiting requests; more are refused.")]
StreamInterval = Annotated[
    int | None,
    _scale(
        help="Minimum tokens of a stream's chunk after the first. Default: not set, each round's "
        "tokens are sent at once, under load those of at most 50 ms together."
    ),
]
