"""Configuration of the service: one model for YAML, flags and environment, checked at the edge.

Flags win over SPECDEC_* environment variables, and these win over the file. The configuration is
resolved once into the core's frozen dataclasses. Nothing below this file reads the environment.
"""

from __future__ import annotations

import hashlib
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from deployments.config.api_keys import default_name, key_digest, read_key_file
from deployments.config.client_limits import ClientLimits
from deployments.config.foreign_names import refuse_unsupported, spread_speculative_config
from deployments.config.hardware import GpuSettings
from deployments.config.nodes import NodeSettings
from deployments.config.scaling import ScaleSettings
from deployments.config.scheduler import PoolSettings, renamed_limits
from deployments.config.telemetry import TelemetrySettings
from deployments.config.tls import TlsSettings
from deployments.config.web import WebSettings
from deployments.demo.drafts import Drafting, choose_drafting
from deployments.observability.metrics.export_prometheus import MetricsCompat
from deployments.text.answers.parser_names import AUTO, check_parser
from deployments.text.chat_messages import MAX_TEMPLATE_SECONDS, SpecialTokensInText
from deployments.text.grammar_limits import DEFAULT_LIMITS, GrammarLimits
from specdec_core.config import (
    DType,
    KPolicyName,
    NgramConfig,
    Numerics,
    PoolConfig,
    SpeculationConfig,
    default_draft_tokens,
    uses_draft_model,
)
from specdec_core.speculation.registry import spec_methods

ENV_PREFIX = "SPECDEC_"
RESUME_TIMEOUT_S = 60.0
READY_TIMEOUT_S = 600.0


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


class ServiceConfig(
    PoolSettings,
    ScaleSettings,
    GpuSettings,
    TelemetrySettings,
    TlsSettings,
    NodeSettings,
    WebSettings,
):
    """All settings of `specdec serve` and serveConfigV2."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        extra="forbid",
        frozen=True,
        protected_namespaces=(),
        hide_input_in_errors=True,  # the input may hold API keys
    )

    model: str = "smollm2-135m"
    """Folder, hub ID, or name of a pulled demo model."""
    served_model_name: str = ""
    """Model name in requests. Empty: the last part of `model`."""
    revision: str | None = None
    draft_revision: str | None = None
    chat_template: Path | None = None
    """File with a Jinja chat template that replaces the model's own."""

    trust_request_chat_template: bool = False
    """Whether chats may bring their own template, which is sandboxed and has its own process."""
    max_template_seconds: float = Field(default=MAX_TEMPLATE_SECONDS, gt=0)
    """Maximum CPU time for rendering a chat's own template, in seconds."""

    special_tokens_in_text: SpecialTokensInText = SpecialTokensInText.ALLOW
    """Treatment of control tokens, such as `<|im_end|>`, in the texts of a conversation."""
    tool_call_parser: str = AUTO
    """Format of tool calls, by vLLM's name. `auto`: chosen by the model's files. `none`: no calls
    are parsed."""
    reasoning_parser: str = AUTO
    """Format of reasoning, by vLLM's name. `auto`: chosen by the model's files. `none`: reasoning
    stays in the content."""

    spec_method: str | None = None
    """`draft_model`, `hybrid`, `none`, or the name of a local drafter, such as `ngram`.

    None: draft_model if `spec_model` is set, otherwise ngram. With `draft_replicas`, the demo's
    draft.
    """
    spec_model: str | None = None
    """Draft model. None: the draft that ships for a demo model, if the method needs one."""
    spec_tokens: int | None = None
    """Maximum drafted tokens per sequence and round (K), 0 to 32.

    None: 15 for targets on CPUs and 8 on GPUs if spec_policy is goodput, otherwise 4.
    """
    spec_policy: KPolicyName = KPolicyName.GOODPUT
    """Policy that chooses K. `goodput` drafts as many tokens as are measured to pay, which may be
    0.

    `schedule` follows spec_schedule. `fixed` always drafts the maximum, for experiments.
    """
    spec_schedule: tuple[tuple[int, int, int], ...] = ()
    """(first, last, K): K drafted tokens while first to last sequences share a target, otherwise
    0."""
    spec_min_confidence: float = 0.0
    """Minimum probability of a drafted token. A draft model's proposal ends before a token below
    it."""
    prompt_lookup_max: int | None = Field(default=None, ge=1)
    prompt_lookup_min: int | None = Field(default=None, ge=1)
    """`prompt_lookup_max` and `prompt_lookup_min`: maximum and minimum length of a match, in
    tokens.

    The match precedes the tokens that prompt lookup copies. None: 1 to 8 if spec_policy is goodput,
    otherwise 2 to 4.
    """
    per_request_spec_decode_metrics: SpecMetrics = SpecMetrics.SUMMARY
    unknown_fields: UnknownFieldsMode = UnknownFieldsMode.WARN
    """`warn` ignores an unknown request field, with a warning. `refuse` answers 400."""
    metrics_compat: MetricsCompat = MetricsCompat.NONE
    """Whether /metrics repeats metrics under vLLM's names for them."""
    generation_config: GenerationConfig = GenerationConfig.AUTO
    """Whether the model's generation_config.json fills what a request leaves open."""

    dtype: DType = DType.AUTO
    numerics: Numerics = Numerics.AUTO
    """With `exact`, a target that cannot keep exact numerics does not start.

    With `auto`, such a target continues in fast numerics. On a GPU it also does so if exact passes
    take over a tenth longer. A draft is always fast, because the target decides on whatever it
    proposes.
    """
    device: str = "auto"
    max_model_len: int | None = Field(default=None, ge=2)
    """Maximum prompt plus output, in tokens. None: the number of the model's positions."""
    kv_cache_tokens: int | None = Field(default=None, ge=64)
    """Capacity of one replica's KV cache, in tokens. None: chosen by the loader."""
    enable_prefix_caching: bool = True
    enforce_eager: bool = False
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=1, le=65535)
    grpc_port: int = Field(default=9000, ge=1, le=65535)
    api_keys: Annotated[tuple[SecretStr, ...], NoDecode] = ()
    """Keys that clients may use. In the environment, commas separate them."""
    api_key_file: Path | None = None
    """File with a name and a key on each line. Limits and metrics use the names."""
    api_key_sha256: tuple[str, ...] = ()
    """Digests of API keys, as `name:digest` or the digest alone.

    A deployed configuration carries keys in this form.
    """
    max_concurrent_per_key: int | None = Field(default=None, ge=1)
    """Maximum requests of one key that run or wait at a time. Every choice counts. None: no
    limit."""
    requests_per_minute_per_key: int | None = Field(default=None, ge=1)
    max_body_bytes: int = Field(default=4 * 2**20, ge=1024)
    resume_timeout_s: float = Field(default=RESUME_TIMEOUT_S, gt=0)
    """Seconds that requests wait for a coordinator or target that is away. Then /ready returns
    503."""
    ready_timeout_s: float = Field(default=READY_TIMEOUT_S, gt=0)
    """Seconds after which `specdec serve` gives up if nothing answers."""
    max_prompt_tokens: int | None = Field(default=None, ge=1)
    max_prompt_chars: int = Field(default=2_000_000, ge=1)
    """Maximum characters of all prompts or messages of one request. A token ID counts as one."""
    max_messages: int = Field(default=4_096, ge=1)
    """Maximum messages of one chat."""
    max_output_tokens: int | None = Field(default=None, ge=1)
    """Maximum output tokens of one request and choice. None: as far as the model's context
    reaches."""
    max_grammar_chars: int = Field(default=DEFAULT_LIMITS.max_chars, ge=1)
    """Maximum characters of one structured-output grammar."""
    max_grammar_seconds: float = Field(default=DEFAULT_LIMITS.max_seconds, gt=0)
    """Maximum CPU time for reading one grammar, in seconds, before its request is queued."""
    max_grammar_states: int = Field(default=DEFAULT_LIMITS.max_states, ge=1000)
    """Maximum lexer states that one structured answer may need. Each takes about 350 bytes."""
    request_timeout_s: float | None = Field(default=None, gt=0)
    stream_interval: int | None = Field(default=None, ge=1)
    """Minimum tokens of a stream's chunk. The first and the last chunk may have fewer.

    None: the tokens of a round, and under load those of 50 ms (ingress/pace.py).
    """
    audit_share: float = Field(default=0.01, ge=0, le=1)
    """Share of finished requests that are replayed without speculation and compared. 0: none.

    Replays run after every client's request.
    """

    topology: Topology = Topology.SEPARATE
    target_num_cpus: float = Field(default=1.0, ge=0)
    draft_num_cpus: float = Field(default=1.0, ge=0)
    ingress_num_cpus: float = Field(default=0.1, ge=0)
    torch_threads: int | None = Field(default=None, ge=1)
    """Threads of one replica's torch. None: the machine's cores, shared among local replicas."""
    graceful_shutdown_s: float = Field(default=20.0, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _accept_foreign_names(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        values = renamed_limits(refuse_unsupported(spread_speculative_config(values)))
        one_key = values.pop("api_key", None)
        return values if one_key is None else {**values, "api_keys": one_key}

    @field_validator("api_keys", mode="before")
    @classmethod
    def _split_keys(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(key.strip() for key in value.split(",") if key.strip())
        return value

    @field_validator("tool_call_parser", "reasoning_parser")
    @classmethod
    def _check_parser(cls, name: str, field: ValidationInfo) -> str:
        assert field.field_name is not None, "it checks two fields of this model"
        return check_parser(field.field_name, name)

    @field_validator("spec_method")
    @classmethod
    def _check_spec_method(cls, name: str | None) -> str | None:
        if name is not None and name not in spec_methods():
            *others, last = map(repr, spec_methods())
            raise ValueError(f"Input should be {', '.join(others)} or {last}")
        return name

    @model_validator(mode="after")
    def _check(self) -> ServiceConfig:
        if self.topology is Topology.COLOCATED:
            raise ValueError(
                "topology=colocated is not supported by serve yet: use topology=separate, "
                "or `specdec generate`, which runs draft and target in one process"
            )
        if uses_draft_model(self.method) and not self.draft:
            raise ValueError(f"spec_method={self.method} needs spec_model")
        if self.spec_model and not uses_draft_model(self.method):
            raise ValueError(f"spec_model is given, but spec_method={self.method} uses none")
        self.pool_config()
        if self.api_key_file is not None:
            read_key_file(self.api_key_file)
        return self

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
        asks = bool(self.draft_replicas or self.max_draft_replicas)
        return choose_drafting(self.model, self.spec_method, self.spec_model, wants_draft=asks)

    @property
    def model_name(self) -> str:
        """The name that requests use."""
        return self.served_model_name or Path(self.model).name

    @property
    def max_draft_tokens(self) -> int:
        """Maximum K of a request and of the policy."""
        if self.spec_tokens is not None:
            return self.spec_tokens
        return default_draft_tokens(self.spec_policy, has_gpu=self.has_gpu)

    @property
    def num_draft_replicas(self) -> int:
        """Maximum draft replicas of a cell. 0 without a draft model."""
        return self.draft_bounds.most if self.draft else 0

    @property
    def autoscales(self) -> bool:
        """Whether the number of targets or drafts follows the load."""
        scaled = [self.target_bounds, *([self.draft_bounds] if self.draft else [])]
        return any(bounds.least < bounds.most for bounds in scaled)

    @property
    def named_keys(self) -> dict[str, str]:
        """Name of every accepted API key, by the key's SHA-256. Empty: no key is needed."""
        split = [entry.rpartition(":") for entry in self.api_key_sha256]
        named = {digest: name or default_name(digest) for name, _, digest in split}
        filed = read_key_file(self.api_key_file) if self.api_key_file else {}
        given = [key_digest(key.get_secret_value()) for key in self.api_keys]
        return named | filed | {digest: default_name(digest) for digest in given}

    @property
    def grammar_limits(self) -> GrammarLimits:
        return GrammarLimits(
            max_chars=self.max_grammar_chars,
            max_seconds=self.max_grammar_seconds,
            max_states=self.max_grammar_states,
        )

    def client_limits(self, cell: int) -> ClientLimits:
        return ClientLimits(
            max_concurrent=self.max_concurrent_per_key,
            requests_per_minute=self.requests_per_minute_per_key,
            cell=cell,
            num_cells=self.cells,
        )

    def pool_config(self) -> PoolConfig:
        """Return the scheduler's configuration. Raises ValueError for limits that do not fit
        together."""
        speculation = SpeculationConfig(
            method=self.method,
            num_draft_tokens=self.max_draft_tokens,
            k_policy=self.spec_policy,
            k_schedule=self.spec_schedule,
            min_confidence=self.spec_min_confidence,
            ngram=NgramConfig.suiting(
                self.spec_policy, self.prompt_lookup_max, self.prompt_lookup_min
            ),
        )
        return self.pool_config_with(speculation, has_gpu=self.has_gpu)

    def threads_per_replica(self, num_cores: int) -> int:
        """Return the torch threads of one replica when all replicas share `num_cores` cores.

        From three cores on, one core is left to the proxies, the ingress and the coordinator. Of
        two cores, a lone target takes both (16 streams of the demo: 47 tokens/s with two threads,
        33 with one).
        """
        if self.torch_threads is not None:
            return self.torch_threads
        num_used = num_cores if num_cores <= 2 else num_cores - 1
        per_cell = self.target_bounds.most + self.num_draft_replicas
        return max(1, num_used // (self.cells * per_cell))

    def with_environment(self) -> ServiceConfig:
        """Return the configuration with SPECDEC_* of this process for the fields that were left
        out.

        This lets API keys come from a Secret.
        """
        return ServiceConfig(**{name: getattr(self, name) for name in self.model_fields_set})

    def deployable(self) -> dict[str, Any]:
        """Return what is sent to the cluster: values that differ from the defaults, and keys as
        digests."""
        kept_here = {"api_keys", "api_key_file", "metrics_api_key", "ready_timeout_s"}
        values = self.model_dump(mode="json", exclude_defaults=True, exclude=kept_here)
        if self.metrics_key_digest:
            values["metrics_api_key_sha256"] = self.metrics_key_digest
        if self.named_keys:
            values["api_key_sha256"] = [
                digest if name == default_name(digest) else f"{name}:{digest}"
                for digest, name in self.named_keys.items()
            ]
        return values

    def version(self) -> str:
        """Return a hash that is equal for equal configurations.

        A coordinator of another version is not shared.
        """
        text = yaml.safe_dump(self.deployable(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def load_service_config(path: Path | None, flags: dict[str, Any]) -> ServiceConfig:
    """Merge flags over environment over file. Raises pydantic's ValueError with every mistake."""
    from_file: Any = yaml.safe_load(path.read_text()) if path else {}
    if not isinstance(from_file or {}, dict) or any(
        not isinstance(n, str) for n in from_file or ()
    ):
        raise ValueError(f"{path} is not a mapping of settings")
    overruled = {name for name in from_file or {} if f"{ENV_PREFIX}{name}".upper() in os.environ}
    kept = {name: value for name, value in (from_file or {}).items() if name not in overruled}
    return ServiceConfig(**{**kept, **flags})
