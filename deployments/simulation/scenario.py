"""Settings, replicas and requests that a seed draws before its world begins."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from deployments.wire.liveness import SILENCE_S
from specdec_core.config import (
    CPU_DRAFT_TOKENS,
    KPolicyName,
    Numerics,
    SchedulerConfig,
    SpecMethod,
    SpeculationConfig,
)
from specdec_core.kv_cache.spec import FullAttentionSpec
from specdec_core.messages import ReplicaInfo, Role
from specdec_core.request import Request
from specdec_core.sampling_params import SamplingParams
from specdec_core.speculation.registry import DRAFTERS

VOCAB_SIZE = 13
_VOCABULARY = range(VOCAB_SIZE)
_DRAFT_TOKENS = (1, 2, 3, 4, CPU_DRAFT_TOKENS)
"""Values of the maximum K. The last is longer than most answers, and than a chunk of a prompt."""
MAX_MODEL_LEN = 40
LEASE_TTL_S = 0.5
RESUME_TIMEOUT_S = 1.5
ARRIVALS_S = 2.4
"""Seconds within which all requests come."""
NUM_REQUESTS = 40
_IMPATIENT = 0.08
"""Share of worlds with a short silence limit. In these a process that hangs for long is given up,
and comes back."""
FIRST_FINGERPRINT = "bits-1"
_METHODS = (
    *[SpecMethod.DRAFT_MODEL] * 5,
    *[SpecMethod.HYBRID] * 2,
    *DRAFTERS,
    SpecMethod.NONE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The settings of one world."""

    scheduler: SchedulerConfig
    num_targets: int
    num_drafts: int
    num_ingresses: int
    num_blocks: int
    block_size: int
    agreement: float
    numerics: Numerics
    audit_share: float
    verify_s: tuple[float, float]
    """Seconds of a target's pass: base, and per input token."""
    draft_s: float
    """Seconds of one draft step."""
    silence_s: float
    """Seconds of silence after which a peer is given up."""

    def replica(self, replica_id: str, role: Role, fingerprint: str) -> ReplicaInfo:
        is_target = role is Role.TARGET
        return ReplicaInfo(
            replica_id=replica_id,
            role=role,
            incarnation=0,
            num_blocks=self.num_blocks,
            kv_cache_spec=FullAttentionSpec(self.block_size),
            max_model_len=MAX_MODEL_LEN,
            vocab_size=VOCAB_SIZE,
            model_digest=str(role),
            fingerprint=fingerprint if is_target else "",
            numerics=self.numerics if is_target else Numerics.FAST,
            keeps_prefixes=is_target and self.block_size % 2 == 0,
        )


def draw_scenario(random: Random) -> Scenario:
    group = random.randint(1, 6)
    block_size = random.randint(2, 5)
    return Scenario(
        scheduler=_scheduler_config(random, group),
        num_targets=2,
        num_drafts=2,
        num_ingresses=2,
        num_blocks=-(-MAX_MODEL_LEN // block_size) + random.randint(0, 60 // block_size),
        block_size=block_size,
        agreement=random.choice((0.0, 0.5, 0.8, 0.95)),
        numerics=random.choice((Numerics.EXACT, Numerics.EXACT, Numerics.EXACT, Numerics.FAST)),
        audit_share=random.choice((0.0, 0.0, 0.3)),
        verify_s=(random.uniform(0.004, 0.02), 0.0002),
        draft_s=random.uniform(0.001, 0.004),
        silence_s=random.uniform(0.8, 2.0) if random.random() < _IMPATIENT else SILENCE_S,
    )


def _scheduler_config(random: Random, group: int) -> SchedulerConfig:
    has_goodput = random.random() < 0.15
    return SchedulerConfig(
        max_group_size=group,
        window=group + random.randint(0, 8),
        max_queued=random.choice((4, 12, 60)),
        prefill_chunk=random.randint(3, 16),
        max_prefill_tokens=random.choice((None, random.randint(1, 40))),
        verification_budget=random.choice((None, None, group + random.randint(0, 8))),
        max_group_wait_s=random.choice((0.0, 0.01, 0.05)),
        lease_ttl_s=LEASE_TTL_S,
        max_open_leases=random.choice((1, 2)),
        speculation=SpeculationConfig(
            method=random.choice(_METHODS),
            num_draft_tokens=random.choice(_DRAFT_TOKENS),
            k_policy=KPolicyName.GOODPUT if has_goodput else KPolicyName.FIXED,
        ),
    )


def draw_request(random: Random, number: int) -> tuple[Request, bool]:
    """Return a request, and whether it must be refused because it is too long."""
    is_invalid = random.random() < 0.03
    prompt = tuple(random.choices(_VOCABULARY, k=random.randint(1, 22)))
    max_tokens = MAX_MODEL_LEN if is_invalid else random.randint(1, 14)
    stops = (random.randrange(VOCAB_SIZE),) if random.random() < 0.3 else ()
    request = Request(
        request_id=f"r{number}",
        prompt_token_ids=prompt,
        params=SamplingParams(max_tokens=max_tokens, seed=number + 1, stop_token_ids=stops),
        speculation_enabled=random.random() < 0.9,
        num_draft_tokens=random.choice((None, None, None, None, 0, 2)),
        priority=random.choice((0, 0, 0, -1, 1)),
        client=random.choice(("", "one", "one", "one", "another")),
        timeout_s=random.uniform(0.05, 2.0) if random.random() < 0.1 else None,
    )
    return request, is_invalid
