"""Settings of a tiny service that a test starts and ends by itself, beside the session's."""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness.ports import free_port
from deployments.config.service import ServiceConfig
from specdec_core.config import KPolicyName, Numerics
from tests.service.tiny_folder import save_tiny_llama

PROMPTS = Path(__file__).parents[2] / "examples" / "prompts.jsonl"


def own_config(folder: Path) -> ServiceConfig:
    """One target, one draft, two ingresses, exact; its models are made in `folder`."""
    target, draft = folder / "target", folder / "draft"
    target.mkdir()
    draft.mkdir()
    return ServiceConfig.of(
        model=str(save_tiny_llama(target)),
        spec_model=str(save_tiny_llama(draft, noise=0.01)),
        # A draft that is never asked could die unnoticed.
        spec_policy=KPolicyName.FIXED,
        # A target that was killed and then stopped starts twice, beside other tests.
        resume_timeout_s=180,
        dtype="bfloat16",
        numerics=Numerics.EXACT,
        kv_cache_tokens=8192,
        torch_threads=1,
        ingress_replicas=2,
        max_ingress_replicas=2,
        port=free_port(),
        grpc_port=free_port(),
        # Two services may start and serve side by side: an answer may take a minute then.
        graceful_shutdown_s=200,
    )
