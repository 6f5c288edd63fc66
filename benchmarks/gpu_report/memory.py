"""Memory planned against memory taken: a pair shares the GPU as a service would let it, then the
largest group runs, with long prompts and sampled choices."""

from __future__ import annotations

import random

import torch

from benchmarks.gpu_report.arranged import Way, decode, engine
from benchmarks.gpu_report.networks import Network, config_of, num_parameters, random_network
from benchmarks.gpu_report.results import Findings
from benchmarks.gpu_report.settings import Settings, Sizes
from specdec_core import Request, SamplingParams, SpecMethod
from specdec_core.config import DEFAULT_GPU_MEMORY_UTILIZATION
from specdec_core.loading.memory_plan import ColocatedDraft, MemoryPlan, build_runner
from specdec_core.worker.model_runner import ModelRunner, kv_shape

_REHEARSED_TOKENS = 8192
"""A CPU plans by the memory of its host: a rehearsal takes little."""


def measure(settings: Settings, findings: Findings) -> None:
    sizes, device = settings.sizes, torch.device(settings.device)
    rows = max(sizes.rows)
    max_len = 4 * sizes.contexts[0]
    target = _place(random_network(sizes.target, settings), settings, max_len, rows)
    tokens = target.kv_cache_spec.max_len(target.num_blocks)
    findings.fact("tokens planned", tokens)
    draft = _place(random_network(sizes.draft, settings, seed=1), settings, max_len, rows, tokens)
    way = Way(rows=rows, k=sizes.k, method=SpecMethod.DRAFT_MODEL)
    decode(engine(way, target, draft), _requests(sizes, target, rows, max_len))
    if device.type == "cuda":
        _compare(device, findings)


def _place(
    network: Network, settings: Settings, max_len: int, rows: int, tokens: int | None = None
) -> ModelRunner:
    """The target without a number of tokens: that is what is planned, a draft in mind."""
    sizes = settings.sizes
    is_target = tokens is None
    if settings.is_rehearsal:
        tokens = _REHEARSED_TOKENS
    placing = MemoryPlan(
        vocab_size=network.config.vocab_size,
        max_model_len=max_len,
        kv_cache_tokens=tokens,
        max_choices=rows * (sizes.k + 1),
        companion=_companion(settings) if is_target else None,
    )
    return build_runner(network, placing)


def _companion(settings: Settings) -> ColocatedDraft:
    """The draft that comes after, by its shape alone."""
    config = config_of(settings.sizes.draft)
    dtype = getattr(torch, settings.sizes.dtype)
    return ColocatedDraft(
        weight_bytes=num_parameters(settings.sizes.draft) * dtype.itemsize,
        spec=kv_shape(config, dtype, torch.device(settings.device)).spec(),
    )


def _requests(sizes: Sizes, model: ModelRunner, rows: int, max_len: int) -> list[Request]:
    """As long as the cache holds for all rows at once."""
    held = model.kv_cache_spec.max_len(model.num_blocks - 2 * rows) // rows
    length = max(min(max_len, held) - sizes.answer_len - 2 * sizes.max_k, 1)
    rng = random.Random(0)
    return [
        Request(
            request_id=str(number),
            prompt_token_ids=tuple(rng.randrange(model.vocab_size) for _ in range(length)),
            params=SamplingParams(
                temperature=0.8, top_p=0.95, seed=number, max_tokens=sizes.answer_len
            ),
        )
        for number in range(rows)
    ]


def _compare(device: torch.device, findings: Findings) -> None:
    """Of this process alone: what others have on the GPU is not its plan's."""
    _, total = torch.cuda.mem_get_info(device)
    planned = total * DEFAULT_GPU_MEMORY_UTILIZATION
    taken = torch.cuda.max_memory_reserved(device)
    findings.fact("GiB planned, weights and all", planned / 2**30)
    findings.fact("GiB taken at the peak", taken / 2**30)
    findings.fact("taken over planned", taken / planned)
