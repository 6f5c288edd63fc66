"""Networks of true shapes with random weights, as models that decode: what a pass costs does not
depend on what the weights say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel, Qwen3Config, Qwen3MoeConfig

from benchmarks.gpu_report.settings import NetworkShape, Settings
from specdec_core.loading.memory_plan import MAX_TOKENS, block_attention_for
from specdec_core.models.llama import LlamaModel, fuse
from specdec_core.worker.cuda_graphs.recorder import DirectRecorder, recorder_for
from specdec_core.worker.model_runner import ModelRunner

Network = PreTrainedModel | LlamaModel
_POSITIONS = 40_960


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    target: ModelRunner
    draft: ModelRunner


def config_of(shape: NetworkShape) -> Any:
    sizes: dict[str, Any] = {
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab,
        "tie_word_embeddings": shape.is_tied,
        "max_position_embeddings": _POSITIONS,
        "initializer_range": 0.05,
        "pad_token_id": None,
    }
    if not shape.experts:
        return Qwen3Config(**sizes, intermediate_size=shape.ffn)
    return Qwen3MoeConfig(
        **sizes,
        moe_intermediate_size=shape.ffn,
        num_experts=shape.experts,
        num_experts_per_tok=shape.experts_per_token,
        norm_topk_prob=True,
    )


def random_network(shape: NetworkShape, settings: Settings, *, seed: int = 0) -> Network:
    """Its greedy answers are arbitrary but not constant."""
    device = torch.device(settings.device)
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)  # as models are placed in service
    torch.manual_seed(seed)
    with device:  # weights of real sizes take minutes on a host
        network = AutoModelForCausalLM.from_config(
            config_of(shape), dtype=getattr(torch, settings.sizes.dtype)
        )
    network.requires_grad_(False)
    return fuse(network.eval(), uses_kernels=True)


def random_networks(settings: Settings) -> tuple[Network, Network]:
    """Of target and draft."""
    sizes = settings.sizes
    return random_network(sizes.target, settings), random_network(sizes.draft, settings, seed=1)


def cached(network: Network, *, tokens: int, max_len: int, is_recorded: bool = True) -> ModelRunner:
    """With a cache of `tokens`. On a CPU recorded passes run as they are: that they run is seen."""
    recorder = (recorder_for(network.device) or DirectRecorder()) if is_recorded else None
    return ModelRunner(
        network,
        vocab_size=network.config.vocab_size,
        kv_cache_tokens=tokens,
        max_model_len=max_len,
        max_tokens_per_pass=MAX_TOKENS["cuda"],
        enable_prefix_caching=False,
        recorder=recorder,
        block_attention=block_attention_for(network) if is_recorded else None,
    )


def cached_pair(
    networks: tuple[Network, Network], *, rows: int, max_len: int, is_recorded: bool = True
) -> Pair:
    """With room for so many rows of a length, and one more."""
    row_len = whole_blocks(max_len)
    target, draft = (
        cached(network, tokens=(rows + 1) * row_len, max_len=row_len, is_recorded=is_recorded)
        for network in networks
    )
    return Pair(target=target, draft=draft)


def whole_blocks(length: int) -> int:
    return -(-length // 64) * 64


def num_parameters(shape: NetworkShape) -> int:
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(config_of(shape))
    return sum(weight.numel() for weight in network.parameters())


def weight_bytes(network: nn.Module, num_tokens: int) -> float:
    """What a pass over so many tokens reads of the weights: of an embedding that is not the head
    rows alone, of experts those that are expected to be chosen."""
    embedding = _embedding(network)
    is_tied = _head(network) is embedding
    total = 0.0
    for name, weight in network.named_parameters():
        if weight is embedding and not is_tied:
            continue
        share = _chosen_share(network, num_tokens) if ".experts." in name else 1.0
        total += weight.numel() * weight.itemsize * share
    return total


def _chosen_share(network: nn.Module, num_tokens: int) -> float:
    """Of experts that at least one token chooses, when all are as likely."""
    config: Any = network.config
    share: float = config.num_experts_per_tok / config.num_experts
    return 1.0 - (1.0 - share) ** num_tokens


def _embedding(network: Any) -> nn.Parameter:
    is_ours = isinstance(network, LlamaModel)
    embedding: Any = network.embedding if is_ours else network.get_input_embeddings()
    weight: nn.Parameter = embedding.weight
    return weight


def _head(network: Any) -> nn.Parameter:
    head: Any = network.head if isinstance(network, LlamaModel) else network.lm_head
    weight: nn.Parameter = head.weight
    return weight
