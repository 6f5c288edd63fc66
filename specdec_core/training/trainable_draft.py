"""A draft network in training: hidden states that predict answers, and columns of its own.

Shape legend: B documents, S IDs, N answer tokens, H hidden size, R IDs that may be proposed, V all.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaForCausalLM

from specdec_core.training.batches import Batch
from specdec_core.training.loss import Teacher, teach


class TrainableDraft:
    """View of a network for training; owns nothing of it. With `vocab_ids` only those IDs have a
    column."""

    def __init__(self, network: LlamaForCausalLM, vocab_ids: Sequence[int] | None) -> None:
        self.network = network
        self.vocab_ids = None if vocab_ids is None else tuple(vocab_ids)
        self.device: torch.device = network.device
        self._head_weight_VH: Tensor
        self._ids_R: Tensor | None
        self._column_V: Tensor | None
        self._frozen_head_RH: Tensor | None
        head = network.get_output_embeddings()
        assert isinstance(head, nn.Linear)
        assert head.bias is None, "Llama's head has none"
        self._head_weight_VH = head.weight
        self._ids_R = None if vocab_ids is None else torch.tensor(vocab_ids, device=self.device)
        self._column_V = None if self._ids_R is None else _columns(self._ids_R, len(head.weight))
        is_frozen = not head.weight.requires_grad
        self._frozen_head_RH = self._rows(head.weight).detach() if is_frozen else None

    def trained_parameters(self) -> dict[str, nn.Parameter]:
        return {name: p for name, p in self.network.named_parameters() if p.requires_grad}

    def logits(self, batch: Batch) -> Tensor:
        """Return the draft's logits for every answer token, [N, R]."""
        hidden_BSH = self.network.model(input_ids=batch.ids, use_cache=False).last_hidden_state
        hidden_NH = hidden_BSH.flatten(0, 1)[batch.positions]
        head_RH = self._frozen_head_RH
        return functional.linear(
            hidden_NH, self._rows(self._head_weight_VH) if head_RH is None else head_RH
        )

    def teacher(self, batch: Batch) -> Teacher:
        return teach(batch.top_ids, batch.top_logprobs, self._column_V)

    def _rows(self, weight_VH: Tensor) -> Tensor:
        return weight_VH if self._ids_R is None else weight_VH[self._ids_R]


def _columns(ids_R: Tensor, vocab_size: int) -> Tensor:
    column_V = torch.full((vocab_size,), -1, dtype=torch.long, device=ids_R.device)
    column_V[ids_R] = torch.arange(len(ids_R), device=ids_R.device)
    return column_V
