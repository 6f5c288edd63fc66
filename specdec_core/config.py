"""Frozen configuration of the engine: composed records, checked once, never written back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

MAX_DRAFT_TOKENS = 32
MAX_CPU_ROWS = 64
GPU_ROWS = 128
"""Default rows of a group on a GPU. On a CPU the default is at most MAX_CPU_ROWS, and only as many
rows as gain."""
FIXED_DRAFT_TOKENS = 4
CPU_DRAFT_TOKENS = 15
"""Default maximum K of goodput on a CPU. With the pending token a sequence then fills tiles of 16
rows, and 8 sequences fill the 128 rows that read the weights once. One token more per sequence
takes 67 ms instead of 56 for 8 sequences on an Intel Xeon with AMX (pass_prices_amx_k.json)."""
GPU_DRAFT_TOKENS = 8
"""Default maximum K of goodput on a GPU. The logits of K + 1 tokens per row take memory from the KV
cache."""
DEFAULT_MAX_CHOICES = GPU_ROWS * (GPU_DRAFT_TOKENS + 1)
"""Default number of sampled tokens per pass for which loading plans memory."""
WINDOW_PER_ROW = 2
"""Default number of admitted sequences per row of a group. One group is formed while the other
runs."""
DEFAULT_GPU_MEMORY_UTILIZATION = 0.9
"""Default share of a GPU's memory that a model and its cache take. vLLM's default."""


class DType(StrEnum):
    """Number type of the weights and the KV cache."""

    AUTO = "auto"
    """Type of the checkpoint."""
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT32 = "float32"


class ModelImpl(StrEnum):
    """Implementation of a model's forward."""

    AUTO = "auto"
    """Our own if it supports the architecture, otherwise that of transformers."""
    TRANSFORMERS = "transformers"


class Numerics(StrEnum):
    """Policy for whether a row's bits may depend on the rows that share its pass."""

    AUTO = "auto"
    """Exact if the self-check at load passes on this machine and model. On a GPU, exact passes must
    also take at most a tenth longer. Otherwise fast."""
    EXACT = "exact"
    """A row's logits are bit for bit the same alone, in any batch, and in any chunking."""
    FAST = "fast"
    """Any shape. Outputs may differ if the two best choices nearly tie."""


class SpecMethod(StrEnum):
    """Methods of drafting that the engine's own rules name. Every local drafter adds the method of
    its name (speculation.registry), so a method is a str."""

    DRAFT_MODEL = "draft_model"
    """A draft replica. N-gram proposals are used while none is available."""
    NGRAM = "ngram"
    """Prompt lookup, a local drafter."""
    HYBRID = "hybrid"
    """N-gram proposals first; the draft model if there is no match."""
    NONE = "none"
    """Decoding without speculation."""


DRAFT_MODEL_METHODS = frozenset({SpecMethod.DRAFT_MODEL, SpecMethod.HYBRID})
"""Methods under which a draft replica proposes."""


class KPolicyName(StrEnum):
    """Policy for the number of tokens that a round drafts, up to num_draft_tokens."""

    GOODPUT = "goodput"
    """Drafts the K whose expected tokens are worth their measured time. K may be 0."""
    FIXED = "fixed"
    """Always drafts num_draft_tokens, even at a loss. For experiments."""
    SCHEDULE = "schedule"
    """Chooses K by the number of live sequences."""


def default_draft_tokens(k_policy: KPolicyName, *, has_gpu: bool) -> int:
    """Return the default maximum K. Goodput uses as much of it as pays. Other policies draft all of
    it whether or not it pays."""
    if k_policy is not KPolicyName.GOODPUT:
        return FIXED_DRAFT_TOKENS
    return GPU_DRAFT_TOKENS if has_gpu else CPU_DRAFT_TOKENS


class OverlapMode(StrEnum):
    """Policy for pipelining: draft one half of a target's sequences while the other is verified."""

    AUTO = "auto"
    """Pipelined when measurements show that it is faster."""
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramConfig:
    """Prompt lookup. The longest suffix n-gram that occurred before proposes the tokens that
    followed it."""

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
        """Return the lengths with defaults by K policy.

        Goodput looks up n-grams of 1 to 8 tokens. It verifies a match of one token only where a row
        costs almost nothing. The length of the match, up to 8, predicts its quality (ngram.py).
        A fixed K verifies every match, so it needs longer ones.
        """
        usual = cls(lookup_max=8, lookup_min=1) if k_policy is KPolicyName.GOODPUT else cls()
        return cls(
            lookup_max=lookup_max or usual.lookup_max, lookup_min=lookup_min or usual.lookup_min
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationConfig:
    method: str | None = None
    """A SpecMethod or the name of a local drafter (speculation.registry). None: the draft model if
    there is one, otherwise prompt lookup."""
    num_draft_tokens: int = FIXED_DRAFT_TOKENS
    """Maximum drafted tokens per sequence and round (K), 0 to 32. Callers that know the device use
    `default_draft_tokens`."""
    k_policy: KPolicyName = KPolicyName.GOODPUT
    k_schedule: tuple[tuple[int, int, int], ...] = ()
    """(first, last, K) for SCHEDULE: K while first to last sequences share a target, otherwise
    0."""
    min_confidence: float = 0.0
    """Minimum probability of a drafted token. A draft model ends its proposal before the first
    token below it. 0: the draft always proposes K tokens."""
    ngram: NgramConfig | None = None
    """None: the defaults for `k_policy`."""

    def __post_init__(self) -> None:
        if (self.k_policy is KPolicyName.SCHEDULE) != bool(self.k_schedule):
            raise ValueError(
                "k_policy=schedule and k_schedule require each other: set both or neither"
            )
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
        """Settings of prompt lookup."""
        return self.ngram or NgramConfig.suiting(self.k_policy)

    @property
    def uses_draft_model(self) -> bool:
        return self.method in DRAFT_MODEL_METHODS

    def resolved(self, *, has_draft: bool) -> SpeculationConfig:
        """Return the configuration with a method, for an engine with or without a draft model."""
        if self.method is not None:
            return self
        return replace(self, method=SpecMethod.DRAFT_MODEL if has_draft else SpecMethod.NGRAM)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Limits of the scheduler. Times are in seconds on the clock of the caller."""

    max_group_size: int = 8
    """Maximum rows of one group (B, the batch). A target that registered fewer gets at most its own
    number."""
    window: int = 32
    """Maximum admitted sequences per target replica that groups are picked from (W). A target that
    registered its own rows admits at most twice that number."""
    max_queued: int = 1024
    """Maximum waiting requests. One more is refused with a retry hint."""
    prefill_chunk: int = 256
    """Maximum catch-up tokens of one row in one group, so that a prefill never blocks for long. The
    limit doubles if no other row is on the target."""
    max_prefill_tokens: int | None = None
    """Maximum catch-up tokens of all rows of a target in its open leases. A row with more tokens
    runs when no other is there. Tokens known to be cached are not counted. None: no limit."""
    verification_budget: int | None = None
    """Maximum tokens that one target pass samples, drafted ones included, rounded up to whole tiles
    of the replica. Beyond it the least promising drafted tokens are left out. None: no limit."""
    max_group_wait_s: float = 0.1
    """Maximum wait of a ready sequence for others to fill its group, in seconds, while its replica
    is idle. If a group is running, the sequence waits for it to end."""
    overlap: OverlapMode = OverlapMode.AUTO
    """Used with a draft model. If short passes take time too, each half costs more than half."""
    grouping: str = "oldest_first"
    """Name of the policy that chooses the rows of a group (scheduler/grouping.py). `equal_length`
    prefers rows that share a pass without padding to the oldest ones, until those are overdue. With
    KV in place no gain was measured, and choosing costs time (decision 0003)."""
    max_open_leases: int = 1
    """Maximum groups that a replica has, including the running one. With 2, sending the next group
    overlaps with the running one, if there are sequences for both."""
    lease_ttl_s: float = 30.0
    """Seconds after which a replica that has not answered a lease is fenced. n replicas that share
    a device have n times as long."""
    speculation: SpeculationConfig = field(default_factory=SpeculationConfig)
    check_invariants: bool = False
    """Let the padded algorithms assert the paper's invariants in every round. This waits for the
    device and is for tests."""

    @property
    def max_choices(self) -> int:
        """Maximum tokens that one target pass samples. Resumed tokens of clients are verified
        within it."""
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
