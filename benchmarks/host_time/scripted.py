"""Models of a few weights on a modelled device, whose choices follow a script.

A pass costs the device its modelled time and the host what a pass costs a GPU's host: planning,
packing, the copy of the numbers and a replay. What the model says is written into the logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, Qwen3Config

from benchmarks.host_time.device import DeviceAttention, DeviceRecorder, ModelledDevice
from benchmarks.host_time.pass_times import PassTimes
from specdec_core.model import DraftChoice, ForwardInput, ForwardOutput
from specdec_core.models.llama import fuse
from specdec_core.worker.model_runner import ModelRunner

_CERTAIN = 1e4
"""A logit that no noise of a sampler outweighs."""
_TOKENS_PER_PASS = 4096
"""Maximum tokens of an unrecorded pass, as on a GPU."""


class Script(Protocol):
    """What a model answers."""

    def begin(self, ids: Sequence[int]) -> int:
        """Return a number for the sequence that begins with `ids`."""
        ...

    def following(self, number: int, num_ids: int, count: int) -> Sequence[int]:
        """Return the token after each of the `count` longest prefixes of the sequence's first
        `num_ids` tokens, shortest prefix first."""
        ...


class ScriptedModel(ModelRunner):
    """A tiny network on a modelled device that chooses what `script` says; greedy only."""

    def __init__(
        self,
        device: ModelledDevice,
        times: PassTimes,
        script: Script,
        *,
        vocab_size: int,
        kv_cache_tokens: int,
        max_model_len: int,
        **options: Any,
    ) -> None:
        """`options` are those of ModelRunner."""
        attention = DeviceAttention()
        self.script = script
        self._modelled = device
        self._numbers: dict[int, int] = {}
        """Slot -> number of its sequence in the script."""
        super().__init__(
            fuse(tiny_network(vocab_size, max_model_len)),
            vocab_size=vocab_size,
            kv_cache_tokens=kv_cache_tokens,
            max_model_len=max_model_len,
            max_tokens_per_pass=_TOKENS_PER_PASS,
            recorder=DeviceRecorder(device, times, attention),
            block_attention=attention,
            **options,
        )
        self.free = self._forget

    def wait(self) -> None:
        """See CachedModel."""
        self._modelled.wait()

    def _forget(self, slot: int) -> None:
        self._kv.free(slot)
        self._numbers.pop(slot, None)

    def forward(self, batch: ForwardInput) -> ForwardOutput:
        """See CachedModel."""
        self._meet(batch)
        logits = super().forward(batch).logits
        chosen: list[int] = []
        for slot, num_logits in zip(batch.slots, batch.num_logits, strict=True):
            chosen += self._following(slot, num_logits)
        return ForwardOutput(_choosing(chosen, logits))

    def draft(
        self, batch: ForwardInput, choices: Sequence[DraftChoice], min_confidence: float
    ) -> list[tuple[int, ...]] | None:
        """See DraftsInOneGo. The steps are launched; the proposals are those of the script."""
        self._meet(batch)
        if super().draft(batch, choices, 0.0) is None:
            return None
        rows = zip(batch.slots, choices, strict=True)
        return [tuple(self._following(slot, count)) for slot, (count, _) in rows]

    def _meet(self, batch: ForwardInput) -> None:
        for slot, ids, _ in batch.rows():
            if slot not in self._numbers:
                self._numbers[slot] = self.script.begin(ids)

    def _following(self, slot: int, count: int) -> Sequence[int]:
        return self.script.following(self._numbers[slot], self.cached_len(slot), count)


def _choosing(tokens: Sequence[int], logits: Tensor) -> Tensor:
    """Return logits of the same shape that choose `tokens`."""
    index_N1 = torch.tensor(tokens, dtype=torch.long).unsqueeze(1)
    return torch.zeros_like(logits).scatter_(1, index_N1, _CERTAIN)


def tiny_network(vocab_size: int, max_positions: int) -> Any:
    """Return a network of one layer, so that its attention is called once a pass."""
    torch.manual_seed(0)
    config = Qwen3Config(
        num_hidden_layers=1,
        hidden_size=16,
        intermediate_size=16,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        vocab_size=vocab_size,
        tie_word_embeddings=True,
        max_position_embeddings=max_positions,
        pad_token_id=None,
    )
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
