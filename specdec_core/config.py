"""Frozen configuration of the engine: composed records, checked once, never written back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

MAX_DRAFT_TOKENS = 32
MAX_CPU_ROWS = 64
GPU_ROWS = 128
"""Rows of a group where nobody says: on a CPU at most, as far as they gain; on a GPU."""
FIXED_DRAFT_TOKENS = 4
CPU_DRAFT_TOKENS = 15
"""Default maximum K of goodput on a CPU. With the pending token a sequence then fills tiles of 16
rows, and 8 sequences fill the 128 rows that read the weights once. One token more per sequence
takes 67 ms instead of 56 for 8 sequences on an Intel Xeon with AMX (pass_prices_amx_k.json)."""
GPU_DRAFT_TOKENS = 8
"""Default maximum K of goodput on a GPU, where the logits of K + 1 tokens a row take memory from
the KV cache."""
DEFAULT_MAX_CHOICES = GPU_ROWS * (GPU_DRAFT_TOKENS + 1)
"""Tokens chosen in one pass that loading plans memory for, unless the caller says."""
WINDOW_PER_ROW = 2
"""Admitted sequences per row of a group where nobody says: one group is formed while the other
runs."""
DEFAULT_GPU_MEMORY_UTILIZATION = 0.9
"""Share of a GPU's memory that a model and its cache take; vLLM's default."""


class DType(StrEnum):
    """In what numbers the weights and the KV cache are held."""

    AUTO = "auto"
    """As the checkpoint says."""
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT32 = "float32"


class ModelImpl(StrEnum):
    """Whose forward a model runs through."""

    AUTO = "auto"
    """Ours where it knows the architecture, else that of transformers."""
    TRANSFORMERS = "transformers"


class Numerics(StrEnum):
    """Whether a row's bits may depend on the rows that share its pass."""

    AUTO = "auto"
    """Exact where the self-check at load passes on this machine and model, and where exact passes
    take at most a tenth longer on a GPU; else fast."""
    EXACT = "exact"
    """A row's logits are bit for bit the same alone, in any batch, and in any chunking."""
    FAST = "fast"
    """Any shape; outputs may differ where the two best choices nearly tie."""


class SpecMethod(StrEnum):
    """Who proposes tokens."""

    DRAFT_MODEL = "draft_model"
    """A draft replica; n-gram proposals while none is available."""
    NGRAM = "ngram"
    """Prompt lookup in the pool."""
    HYBRID = "hybrid"
    """n-gram first, the draft model where it finds nothing."""
    NONE = "none"
    """Plain decoding."""

    @property
    def uses_draft_model(self) -> bool:
        return self in (SpecMethod.DRAFT_MODEL, SpecMethod.HYBRID)


class KPolicyName(StrEnum):
    """Who says how many tokens a round drafts, up to num_draft_tokens."""

    GOODPUT = "goodput"
    """As many as earn more tokens than their time would, by what was measured; 0 as well."""
    FIXED = "fixed"
    """num_draft_tokens, always, also where it loses: for experiments."""
    SCHEDULE = "schedule"
    """By the number of live sequences."""


def default_draft_tokens(k_policy: KPolicyName, *, has_gpu: bool) -> int:
    """Return the maximum K of a configuration that names none. Goodput uses as much of it as pays;
    other policies draft all of it whether or not it pays."""
    if k_policy is not KPolicyName.GOODPUT:
        return FIXED_DRAFT_TOKENS
    return GPU_DRAFT_TOKENS if has_gpu else CPU_DRAFT_TOKENS


class OverlapMode(StrEnum):
    """Whether one half of a target's sequences is drafted while the other is verified."""

    AUTO = "auto"
    """Where that was measured to be faster."""
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramConfig:
    """Prompt lookup: the longest suffix n-gram that occurred before proposes what followed it."""

    lookup_max: int = 4
    lookup_min: int = 2

    def __post_init__(self) -> None:
        if not 1 <= self.lookup_min <= self.lookup_max:
            raise ValueError(
                "1 <= lookup_min <= lookup_max is needed, "
                f"got lookup_min={self.lookup_min}, lookup_max={self.lookup_max}"
            )

    @classmethod
    def suiting(
        cls, k_policy: KPolicyName, lookup_max: int | None = None, lookup_min: int | None = None
    ) -> NgramConfig:
        """With what is not given as suits who says how many tokens are checked: by goodput, what
        follows a single equal token is, where a row costs next to nothing, and up to 8 equal ones
        tell how good it is (copy_belief). A fixed K would check all of it."""
        usual = cls(lookup_max=8, lookup_min=1) if k_policy is KPolicyName.GOODPUT else cls()
        return cls(
            lookup_max=lookup_max or usual.lookup_max, lookup_min=lookup_min or usual.lookup_min
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationConfig:
    method: SpecMethod | None = None
    """None: the draft model where there is one, else prompt lookup."""
    num_draft_tokens: int = FIXED_DRAFT_TOKENS
    """Maximum drafted tokens per sequence and round (K), 0 to 32. Callers that know the device use
    `default_draft_tokens`."""
    k_policy: KPolicyName = KPolicyName.GOODPUT
    k_schedule: tuple[tuple[int, int, int], ...] = ()
    """(first, last, K) for SCHEDULE: K while first to last sequences share a target, else 0."""
    min_confidence: float = 0.0
    """A draft model proposes only tokens that it gives at least this probability, and ends its
    proposal at the first other one. 0: it always drafts K tokens."""
    ngram: NgramConfig | None = None
    """None: as suits `k_policy`."""

    def __post_init__(self) -> None:
        if (self.k_policy is KPolicyName.SCHEDULE) != bool(self.k_schedule):
            raise ValueError("k_policy=schedule and k_schedule need each other")
        for first, last, k in self.k_schedule:
            if not (1 <= first <= last and 0 <= k <= self.num_draft_tokens):
                raise ValueError(
                    "k_schedule: 1 <= first <= last and K in "
                    f"0..{self.num_draft_tokens} are needed, got {(first, last, k)}"
                )
        if not 0.0 <= self.min_confidence <= 1.0:
            raise ValueError(f"min_confidence must be in 0..1, got {self.min_confidence}")
        if not 0 <= self.num_draft_tokens <= MAX_DRAFT_TOKENS:
            raise ValueError(
                f"num_draft_tokens must be in 0..{MAX_DRAFT_TOKENS}, got {self.num_draft_tokens}"
            )

    @property
    def lookup(self) -> NgramConfig:
        """Prompt lookup's."""
        return self.ngram or NgramConfig.suiting(self.k_policy)

    @property
    def uses_draft_model(self) -> bool:
        return self.method is not None and self.method.uses_draft_model

    def settled(self, *, has_draft: bool) -> SpeculationConfig:
        """The same with a method, for an engine with or without a draft model."""
        if self.method is not None:
            return self
        return replace(self, method=SpecMethod.DRAFT_MODEL if has_draft else SpecMethod.NGRAM)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """Limits of the pool. Times are seconds on whatever clock the driver passes in."""

    max_group_size: int = 8
    """Most rows of one group (B, the batch). A target that has registered fewer gets no more."""
    window: int = 32
    """Most admitted sequences per target replica that groups are picked from (W). A target that has
    registered its own rows admits twice as many at most."""
    max_queued: int = 1024
    """Most waiting requests; one more is refused with a retry hint."""
    prefill_chunk: int = 256
    """Most catch-up tokens of one row in one group, so that a prefill never blocks for long; twice
    as many where nobody else is on the target."""
    max_prefill_tokens: int | None = None
    """Most catch-up tokens of all rows that a target has at a time, open leases together; a row of
    more goes when no other is there. What it is known to have cached is not counted. None: no
    limit."""
    verification_budget: int | None = None
    """Most tokens that one target pass chooses, drafted ones included; raised to whole tiles of the
    replica. Beyond it the least promising drafted tokens are left out. None: no limit."""
    max_group_wait_s: float = 0.1
    """Longest that a ready sequence waits for others to fill its group while its replica is idle;
    behind a running group it waits for that one."""
    overlap: OverlapMode = OverlapMode.AUTO
    """With a draft model. Halves cost more than half where short passes take their time, too."""
    group_by_shape: bool = False
    """Prefer rows that share a pass without padding to the oldest ones, until those are overdue.
    With KV in place it gains nothing that was measured, and costs the choice (decision 0003)."""
    max_open_leases: int = 1
    """Groups that a replica has at most, the one that it runs among them. With 2 the next one's way
    is hidden behind the one that runs, where there are sequences for both."""
    lease_ttl_s: float = 30.0
    """A replica that has not answered a lease by then is fenced; one of n that share a device has n
    times as long."""
    speculation: SpeculationConfig = field(default_factory=SpeculationConfig)
    check_invariants: bool = False
    """Let the padded algorithms assert the paper's invariants in every round. Waits for the device:
    for tests."""

    @property
    def max_choices(self) -> int:
        """Most tokens that one target pass chooses. What clients bring back is checked within
        it."""
        num_drafted = self.max_group_size * (self.speculation.num_draft_tokens + 1)
        return max(num_drafted, self.prefill_chunk)

    def __post_init__(self) -> None:
        for name in ("max_group_size", "window", "prefill_chunk", "max_open_leases"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.window < self.max_group_size:
            raise ValueError(
                f"window must be at least max_group_size={self.max_group_size}, got {self.window}"
            )
        if self.verification_budget is not None and self.verification_budget < self.max_group_size:
            raise ValueError(
                f"verification_budget must be at least max_group_size={self.max_group_size}, "
                f"got {self.verification_budget}"
            )
        if self.max_prefill_tokens is not None and self.max_prefill_tokens < 1:
            raise ValueError(
                f"max_prefill_tokens must be at least 1, got {self.max_prefill_tokens}"
            )
        if self.max_queued < 0:
            raise ValueError(f"max_queued must not be negative, got {self.max_queued}")
