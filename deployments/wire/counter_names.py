"""Prefixes of counter names in PoolStatus. The coordinator writes them, metrics read them.

A counter that has one writer may have its name there (RequestObserver.counters).
"""

from __future__ import annotations

FINISHED, REJECTED, FAILED = "num_finished_", "num_rejected_", "num_failed_"
AUDITED, DIVERGED = "num_audited_", "num_diverged_"
CLIENT_PROMPT, CLIENT_CACHED = "num_client_prompt_tokens_", "num_client_cached_tokens_"
GRANTED, EXPIRED = "num_leases_granted_", "num_leases_expired_"
K_CAUSE = "num_rounds_k_by_"
