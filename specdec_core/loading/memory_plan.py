"""Makes a ModelRunner from a loaded network: its passes, and the memory that it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specdec_core.config import DEFAULT_GPU_MEMORY_UTILIZATION, DEFAULT_MAX_CHOICES
from specdec_core.errors import InvalidRequestError
from specdec_core.kv_cache.paged import BLOCK_SIZE, KVShape
from specdec_core.kv_cache.spec import KVCacheSpec
from specdec_core.layers.attention.paged import BlockAttention
from specdec_core.layers.attention.select import find_block_attention
from specdec_core.loading.memory import (
    DeviceMemory,
    KVNeeds,
    default_kv_blocks,
    peak_bytes,
    plan_kv_blocks,
)
from specdec_core.model import score
from specdec_core.models.llama import LlamaModel
from specdec_core.sampling.sampler import choose
from specdec_core.sampling_params import SampleRow, SamplingParams, SamplingRules
from specdec_core.worker.cuda_graphs.buckets import most_logits
from specdec_core.worker.cuda_graphs.recorder import recorder_for
from specdec_core.worker.model_runner import ModelRunner, kv_shape

MAX_TOKENS = {"cpu": 512, "cuda": 4096}
"""Maximum tokens of one pass. A CPU verifies 32 sequences of K = 15 in one pass. A GPU verifies
128 sequences of K = 31 in one: it reads the weights once."""
_CHOSEN_BY = (SamplingParams(temperature=1.0), SamplingParams(temperature=0.8, top_p=0.95))
"""Sampling rules for measuring memory. The maximum comes either without filters, where every ID
gets its noise, or with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Settings for the memory of a model on its device."""

    vocab_size: int
    max_model_len: int
    kv_cache_tokens: int | None = None
    enable_prefix_caching: bool = True
    enforce_eager: bool = False
    gpu_memory_utilization: float = DEFAULT_GPU_MEMORY_UTILIZATION
    max_choices: int = DEFAULT_MAX_CHOICES
    """Maximum tokens that one call samples."""
    companion: ColocatedDraft | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColocatedDraft:
    """Memory that one of several models on a GPU takes. A draft in its target's process is loaded
    after the target and has the same number of blocks."""

    weight_bytes: int
    spec: KVCacheSpec


def share_of(
    own: ColocatedDraft, colocated: Sequence[ColocatedDraft], total: int, utilization: float
) -> float:
    """Return the share of a GPU's `total` bytes for one of the processes in `colocated`.

    Together the processes use `utilization` of the GPU. Each gets its weights and the memory of an
    equal number of KV blocks. Each process computes its share without asking the others.
    """
    room = total * utilization - sum(one.weight_bytes for one in colocated)
    num_blocks = max(room, 0.0) / sum(one.spec.bytes_per_block for one in colocated)
    taken = own.weight_bytes + num_blocks * own.spec.bytes_per_block
    return min(taken / total, utilization)


def build_runner(weights: PreTrainedModel | LlamaModel, plan: MemoryPlan) -> ModelRunner:
    """Return the model with its cache, recorder and attention for its device."""
    if weights.device.type == "cuda":
        # Before anything is measured. PyTorch prefers cuDNN's attention on an H100, but it makes a
        # plan for each new shape, and passes have many shapes.
        torch.backends.cuda.enable_cudnn_sdp(False)
    attention = None if plan.enforce_eager else block_attention_for(weights)
    tokens = plan.kv_cache_tokens or _planned_blocks(weights, plan, attention) * BLOCK_SIZE
    if tokens < plan.max_model_len:
        raise InvalidRequestError(
            f"a KV cache of {tokens} tokens cannot hold one sequence of "
            f"max_model_len={plan.max_model_len}; lower max_model_len or raise kv_cache_tokens"
        )
    return ModelRunner(
        weights,
        vocab_size=plan.vocab_size,
        kv_cache_tokens=tokens,
        max_model_len=plan.max_model_len,
        max_tokens_per_pass=MAX_TOKENS[weights.device.type],
        enable_prefix_caching=plan.enable_prefix_caching,
        recorder=None if plan.enforce_eager else recorder_for(weights.device),
        block_attention=attention,
        max_choices=plan.max_choices,
    )


def block_attention_for(weights: PreTrainedModel | LlamaModel) -> BlockAttention | None:
    """Return attention over a block table if the device of the weights supports one."""
    shape = _shape(weights)
    return find_block_attention(shape, weights.config.num_attention_heads, BLOCK_SIZE)


def _shape(weights: PreTrainedModel | LlamaModel) -> KVShape:
    return kv_shape(weights.config, weights.dtype, weights.device)


def _planned_blocks(
    weights: PreTrainedModel | LlamaModel, plan: MemoryPlan, attention: BlockAttention | None
) -> int:
    shape = _shape(weights)
    if shape.device.type != "cuda":
        # The worst case is float32: bfloat16 logits with penalties or a bias are copied to float32.
        logit_bytes = plan.max_choices * weights.config.vocab_size * torch.float32.itemsize
        return default_kv_blocks(shape.spec(), logit_bytes)
    pass_bytes, round_bytes = _workspace_bytes(weights, plan, attention)
    needs = KVNeeds(
        spec=shape.spec(),
        num_layers=shape.num_layers,
        workspace_bytes=pass_bytes,
        choice_bytes=max(round_bytes - pass_bytes, 0),
        logit_bytes=most_logits(plan.max_choices)
        * weights.config.vocab_size
        * shape.dtype.itemsize,
        is_recorded=not plan.enforce_eager,
        reads_blocks=attention is not None,
    )
    if plan.companion is not None:
        needs = _beside(needs, plan.companion)
    memory = DeviceMemory.now(shape.device)
    return plan_kv_blocks(memory, needs, plan.gpu_memory_utilization)


def _beside(needs: KVNeeds, companion: ColocatedDraft) -> KVNeeds:
    """Add the needs of a draft. Its workspace is no larger than its target's, and the two never run
    together. Each still keeps what it took, its recordings included."""
    return replace(
        needs,
        companion_bytes=companion.weight_bytes + needs.kept_bytes,
        companion_bytes_per_block=companion.spec.bytes_per_block,
    )


def _workspace_bytes(
    weights: PreTrainedModel | LlamaModel, plan: MemoryPlan, attention: BlockAttention | None
) -> tuple[int, int]:
    """Measure the bytes of the largest pass without weights and cache, and of the pass with
    sampling.

    The pass is a long prefill that returns the number of logits of a large group.
    """
    count = min(MAX_TOKENS["cuda"], plan.max_model_len)
    num_slots = -(-plan.max_choices // count)
    spec = _shape(weights).spec()
    model = ModelRunner(
        weights,
        vocab_size=plan.vocab_size,
        kv_cache_tokens=spec.max_len(num_slots * spec.blocks_for(count)),
        max_model_len=plan.max_model_len,
        max_tokens_per_pass=MAX_TOKENS["cuda"],
        block_attention=attention,
    )
    wanted = [min(count, plan.max_choices - start * count) for start in range(num_slots)]
    return (
        peak_bytes(lambda: _score(model, count, wanted), weights.device),
        peak_bytes(lambda: _score_and_choose(model, count, wanted), weights.device),
    )


def _score(model: ModelRunner, count: int, wanted: Sequence[int]) -> Tensor:
    """Return the logits of the last `wanted` of `count` tokens, with one slot per entry of
    `wanted`."""
    slots = [model.allocate() for _ in wanted]
    logits = score(model, [(s, [0] * count, n) for s, n in zip(slots, wanted, strict=True)])
    for slot in slots:
        model.free(slot)
    return logits


def _score_and_choose(model: ModelRunner, count: int, wanted: Sequence[int]) -> None:
    logits = _score(model, count, wanted)
    for params in _CHOSEN_BY:
        rules = SamplingRules(params, prompt_len=0)
        rows = [SampleRow(rules, position) for position in range(len(logits))]
        choose(logits, rows, model.vocab_size)
