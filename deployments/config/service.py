"""Configuration of the service: one record for YAML, flags and environment, checked at the edge.

Flags win over SPECDEC_* environment variables, and these win over the file. Nothing below this file
reads the environment.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from deployments.config.api_keys import KeyOptions, default_name
from deployments.config.flags import assembled, declarations, flag, section, setting, values_of
from deployments.config.foreign_names import refuse_unsupported, spread_speculative_config
from deployments.config.loading import LoadOptions, model_argument
from deployments.config.nodes import NodeOptions
from deployments.config.scaling import ScalingOptions, Thresholds, thresholds_section
from deployments.config.scheduler import SchedulerOptions, renamed_limits
from deployments.config.speculation import SpeculationOptions
from deployments.config.telemetry import TelemetryOptions
from deployments.config.tls import TlsOptions
from deployments.config.web import WebOptions
from deployments.demo.drafts import Drafting, choose_drafting
from deployments.names import MetricsCompat
from deployments.text.chat_messages import MAX_TEMPLATE_SECONDS, SpecialTokensInText
from deployments.text.grammar_limits import DEFAULT_LIMITS, GrammarLimits
from specdec_core.config import DRAFT_MODEL_METHODS, SchedulerConfig, default_draft_tokens

ENV_PREFIX = "SPECDEC_"
RESUME_TIMEOUT_S = 60.0
READY_TIMEOUT_S = 600.0
_MODEL, _ADDRESS = "Model", "Address"
_KEPT_HERE = ("api_keys", "api_key_file", "metrics_api_key", "ready_timeout_s")
"""Settings that are not sent to the cluster."""


class Topology(StrEnum):
    """Where draft and target run."""

    SEPARATE = "separate"
    COLOCATED = "colocated"


class SpecMetrics(StrEnum):
    """Speculation statistics included in each response."""

    NONE = "none"
    SUMMARY = "summary"
    DETAILED = "detailed"


class UnknownFieldsMode(StrEnum):
    """Treatment of an unknown request field."""

    WARN = "warn"
    """Ignore it, with a warning in the log and in the response."""
    REFUSE = "refuse"


class GenerationConfig(StrEnum):
    """Source of the values that a request leaves open."""

    AUTO = "auto"
    """The model's generation_config.json, then our own defaults."""
    NONE = "none"
    """Our own defaults only."""


def _check_parser(setting: str, name: str) -> str:
    from deployments.text.answers.parser_names import check_parser

    return check_parser(setting, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitOptions:
    """Limits of one request."""

    max_body_bytes: int = setting(4 * 2**20, ge=1024)
    max_prompt_tokens: int | None = setting(None, ge=1)
    max_prompt_chars: int = setting(2_000_000, ge=1)
    """Maximum characters of all prompts or messages of one request. A token ID counts as one."""
    max_messages: int = setting(4_096, ge=1)
    """Maximum messages of one chat."""
    max_output_tokens: int | None = setting(None, ge=1)
    """Maximum output tokens of one request and choice. None: as far as the model's context
    reaches."""
    max_template_seconds: float = setting(MAX_TEMPLATE_SECONDS, gt=0)
    """Maximum CPU time for rendering a chat's own template, in seconds."""
    max_grammar_chars: int = setting(DEFAULT_LIMITS.max_chars, ge=1)
    """Maximum characters of one structured-output grammar."""
    max_grammar_seconds: float = setting(DEFAULT_LIMITS.max_seconds, gt=0)
    """Maximum CPU time for reading one grammar, in seconds, before its request is queued."""
    max_grammar_states: int = setting(DEFAULT_LIMITS.max_states, ge=1000)
    """Maximum lexer states that one structured answer may need. Each takes about 350 bytes."""
    request_timeout_s: float | None = setting(None, gt=0)

    @property
    def grammar_limits(self) -> GrammarLimits:
        return GrammarLimits(
            max_chars=self.max_grammar_chars,
            max_seconds=self.max_grammar_seconds,
            max_states=self.max_grammar_states,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """All settings of `specdec serve` and serveConfigV2.

    Users write them by flat names. Make one by `of`, which checks them.
    """

    PANEL: ClassVar[str] = _MODEL

    model: str = model_argument()
    served_model_name: str = flag("", "Model name in requests. Default: the last part of MODEL.")
    loading: LoadOptions = section(LoadOptions, gpu_memory_utilization=None)
    speculation: SpeculationOptions = section(SpeculationOptions)
    scheduler: SchedulerOptions = section(SchedulerOptions)
    scaling: ScalingOptions = section(ScalingOptions)
    thresholds: Thresholds = thresholds_section()
    nodes: NodeOptions = section(NodeOptions)
    tls: TlsOptions = section(TlsOptions)
    telemetry: TelemetryOptions = section(TelemetryOptions)
    web: WebOptions = section(WebOptions)
    keys: KeyOptions = section(KeyOptions)
    limits: LimitOptions = section(LimitOptions)

    trust_request_chat_template: bool = setting(False)
    """Whether chats may bring their own template, which is sandboxed and has its own process."""
    special_tokens_in_text: SpecialTokensInText = flag(
        SpecialTokensInText.ALLOW,
        "Treatment of control tokens in the texts of a conversation, such as <|im_end|>. "
        "`allow` (default) reads them as control tokens, `plain` as ordinary text. "
        "`refuse` answers 400.",
        choices=SpecialTokensInText,
    )
    tool_call_parser: str = flag(
        "auto",
        "Format of tool calls, by vLLM's name, such as `hermes`. `auto` (default) chooses it "
        "by the model's files. `none` reads no calls. An unknown name lists all names.",
        check=partial(_check_parser, "tool_call_parser"),
        metavar="NAME",
    )
    reasoning_parser: str = flag(
        "auto",
        "Format of reasoning, by vLLM's name, such as `qwen3`. `auto` (default) chooses it by "
        "the model's files. `none` leaves reasoning in the content. An unknown name lists all "
        "names.",
        check=partial(_check_parser, "reasoning_parser"),
        metavar="NAME",
    )
    per_request_spec_decode_metrics: SpecMetrics = flag(
        SpecMetrics.SUMMARY,
        "Speculation statistics in each response. Default: summary.",
        panel="Speculation",
        metavar="[none|summary]",
    )
    unknown_fields: UnknownFieldsMode = flag(
        UnknownFieldsMode.WARN,
        "Unknown request fields: ignored with a warning (`warn`, the default), or refused.",
        metavar="[warn|refuse]",
    )
    metrics_compat: MetricsCompat = flag(
        MetricsCompat.NONE,
        "Additional naming scheme of /metrics. Default: none.",
        metavar="[none|vllm]",
    )
    generation_config: GenerationConfig = flag(
        GenerationConfig.AUTO,
        "Source of sampling parameters that a request does not set. `auto` (default) "
        "uses the model's generation_config.json, `none` the general defaults.",
        metavar="[auto|none]",
    )
    host: str = flag("127.0.0.1", "Address to listen on.", panel=_ADDRESS, show_default="127.0.0.1")
    port: int = flag(
        8000, "HTTP port.", bounds={"ge": 1, "le": 65535}, panel=_ADDRESS, show_default="8000"
    )
    grpc_port: int = flag(
        9000, "gRPC port.", bounds={"ge": 1, "le": 65535}, panel=_ADDRESS, show_default="9000"
    )
    resume_timeout_s: float = setting(RESUME_TIMEOUT_S, gt=0)
    """Seconds that requests wait for a coordinator or target that is away. Then /ready returns
    503."""
    ready_timeout_s: float = flag(
        READY_TIMEOUT_S,
        "Maximum seconds to wait until the service answers. Default: 600.",
        "--ready-timeout",
        bounds={"gt": 0},
        panel=_ADDRESS,
        metavar="SECONDS",
    )
    stream_interval: int | None = flag(
        None,
        "Minimum tokens of a stream's chunk after the first. Default: not set. Then each "
        "round's tokens are sent immediately, or collected for up to 50 ms under load.",
        bounds={"ge": 1},
        panel="Scale",
    )
    """The last chunk may have fewer tokens. See ingress/scheduler_client.py."""
    audit_share: float = setting(0.01, ge=0, le=1)
    """Share of finished requests that are replayed without speculation and compared. 0: none.

    Replays run after every client's request.
    """

    topology: Topology = setting(Topology.SEPARATE)
    target_num_cpus: float = setting(1.0, ge=0)
    draft_num_cpus: float = setting(1.0, ge=0)
    ingress_num_cpus: float = setting(0.1, ge=0)
    torch_threads: int | None = setting(None, ge=1)
    """Threads of one replica's torch. None: the machine's cores, shared among local replicas."""
    graceful_shutdown_s: float = setting(20.0, ge=0)

    def __post_init__(self) -> None:
        """Refuse settings that do not fit together."""
        if self.topology is Topology.COLOCATED:
            raise ValueError(
                "topology=colocated is not supported by serve yet: use topology=separate, "
                "or `specdec generate`, which runs draft and target in one process"
            )
        if self.method in DRAFT_MODEL_METHODS and not self.draft:
            raise ValueError(f"spec_method={self.method} needs spec_model")
        if self.speculation.spec_model and self.method not in DRAFT_MODEL_METHODS:
            raise ValueError(f"spec_model is given, but spec_method={self.method} uses none")
        self.nodes.check_cells(self.scaling.cells)
        self.scheduler_config()

    @classmethod
    def of(cls, **settings: Any) -> ServiceConfig:
        """Return the configuration. SPECDEC_* of this process set what `settings` leave out.

        Raises pydantic's ValidationError with every mistake.
        """
        return _checked({**environment(), **settings})

    def replaced(self, **settings: Any) -> ServiceConfig:
        """Return the configuration with other values, by their flat names."""
        return assembled(ServiceConfig, {**values_of(self), **settings})

    @property
    def method(self) -> str:
        return self._drafting.method

    @property
    def uses_generation_config(self) -> bool:
        return self.generation_config is GenerationConfig.AUTO

    @property
    def draft(self) -> str | None:
        """The draft model that is served."""
        return self._drafting.draft

    @property
    def _drafting(self) -> Drafting:
        asks = bool(self.scaling.draft_replicas or self.scaling.max_draft_replicas)
        spec = self.speculation
        return choose_drafting(self.model, spec.spec_method, spec.spec_model, wants_draft=asks)

    @property
    def has_gpu(self) -> bool:
        """Whether targets run on GPUs. Known once `with_gpus` has seen what there is."""
        return bool(self.scaling.target_num_gpus)

    @property
    def model_name(self) -> str:
        """The name that requests use."""
        return self.served_model_name or Path(self.model).name

    @property
    def max_draft_tokens(self) -> int:
        """Maximum K of a request and of the policy."""
        if self.speculation.spec_tokens is not None:
            return self.speculation.spec_tokens
        return default_draft_tokens(self.speculation.spec_policy, has_gpu=self.has_gpu)

    @property
    def num_draft_replicas(self) -> int:
        """Maximum draft replicas of a cell. 0 without a draft model."""
        return self.scaling.draft_bounds.most if self.draft else 0

    @property
    def autoscales(self) -> bool:
        """Whether the number of targets or drafts follows the load."""
        scaling = self.scaling
        scaled = [scaling.target_bounds, *([scaling.draft_bounds] if self.draft else [])]
        return any(bounds.least < bounds.most for bounds in scaled)

    def scheduler_config(self) -> SchedulerConfig:
        """Return the scheduler's configuration. Raises ValueError for limits that do not fit
        together."""
        return self.speculation.scheduler_config(
            self.method,
            self.max_draft_tokens,
            rows=self.scheduler.rows(has_gpu=self.has_gpu),
            window=self.scheduler.window,
            **self.scheduler.limits(has_gpu=self.has_gpu),
        )

    def threads_per_replica(self, num_cores: int) -> int:
        """Return the torch threads of one replica when all replicas share `num_cores` cores.

        From three cores on, one core is left to the proxies, the ingress and the coordinator. Of
        two cores, a lone target takes both (16 streams of the demo: 47 tokens/s with two threads,
        33 with one).
        """
        if self.torch_threads is not None:
            return self.torch_threads
        num_used = num_cores if num_cores <= 2 else num_cores - 1
        per_cell = self.scaling.target_bounds.most + self.num_draft_replicas
        return max(1, num_used // (self.scaling.cells * per_cell))

    def deployable(self) -> dict[str, Any]:
        """Return what is sent to the cluster: values that differ from the defaults, and keys as
        digests."""
        defaults, given = {d.name: d.default for d in declarations(ServiceConfig)}, values_of(self)
        changed = {
            name: value
            for name, value in given.items()
            if name not in _KEPT_HERE and value != defaults[name]
        }
        values: dict[str, Any] = json.loads(json.dumps(changed, default=str))
        if self.web.metrics_key_digest:
            values["metrics_api_key_sha256"] = self.web.metrics_key_digest
        if self.keys.named:
            values["api_key_sha256"] = [
                digest if name == default_name(digest) else f"{name}:{digest}"
                for digest, name in self.keys.named.items()
            ]
        return values

    def version(self) -> str:
        """Return a hash that is equal for equal configurations.

        A coordinator of another version is not shared.
        """
        text = json.dumps(self.deployable(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def load_service_config(path: Path | None, flags: Mapping[str, Any]) -> ServiceConfig:
    """Merge flags over environment over file. Raises ValueError with every mistake."""
    import yaml

    from_file: Any = yaml.safe_load(path.read_text()) if path else {}
    if not isinstance(from_file or {}, dict) or any(
        not isinstance(n, str) for n in from_file or ()
    ):
        raise ValueError(f"{path} is not a mapping of settings")
    return _checked({**(from_file or {}), **environment(), **flags})


def environment() -> dict[str, str]:
    """Return the settings of SPECDEC_* variables of this process, as texts."""
    given = {name.upper(): text for name, text in os.environ.items()}
    names = {d.name: f"{ENV_PREFIX}{d.name}".upper() for d in declarations(ServiceConfig)}
    return {name: given[variable] for name, variable in names.items() if variable in given}


def _checked(values: Mapping[str, Any]) -> ServiceConfig:
    from deployments.config.checking import checked

    return checked(ServiceConfig, values, _translated)


def _translated(values: dict[str, Any]) -> dict[str, Any]:
    """Replace the names of other servers and old names by ours."""
    values = renamed_limits(refuse_unsupported(spread_speculative_config(values)))
    one_key = values.pop("api_key", None)
    return values if one_key is None else {**values, "api_keys": one_key}
