"""Reduced vocabulary of a draft: a head with rows only for the IDs that it may propose.

The folder keeps an ordinary full head. An extra file lists the IDs; software that ignores this file
loads the full head. A token that the draft cannot propose costs a rejection. It never changes the
output.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from specdec_core.errors import ModelNotSupportedError

CONFIG_FIELD = "draft_vocab_ids"
"""Field of config.json that names the file of token IDs."""
FILE_NAME = "draft_vocab.json"


class ReducedHead(nn.Module):
    """Logits of the listed ids; -inf for every other one."""

    def __init__(self, head: nn.Linear, ids: Sequence[int]) -> None:
        super().__init__()
        self.out_features = head.out_features
        self.ids: Tensor
        self.register_buffer("ids", torch.tensor(ids, device=head.weight.device), persistent=False)
        self.linear = nn.Linear(head.in_features, len(ids), bias=head.bias is not None)
        self.linear.weight = nn.Parameter(head.weight.detach()[self.ids], requires_grad=False)
        if head.bias is not None:
            self.linear.bias = nn.Parameter(head.bias.detach()[self.ids], requires_grad=False)

    def forward(self, hidden: Tensor) -> Tensor:
        reduced: Tensor = self.linear(hidden)
        logits = reduced.new_full((*reduced.shape[:-1], self.out_features), -math.inf)
        return logits.index_copy_(-1, self.ids, reduced)


def reduce_head(model: PreTrainedModel, folder: Path) -> None:
    """Give `model` the head that its folder asks for. Raises ModelNotSupportedError."""
    name = getattr(model.config, CONFIG_FIELD, None)
    if name is None:
        return
    head = model.get_output_embeddings()
    assert isinstance(head, nn.Linear)
    model.set_output_embeddings(ReducedHead(head, _read_ids(folder, name, head.out_features)))


def write_draft_vocabulary(folder: Path, config: PreTrainedConfig, ids: Sequence[int]) -> None:
    """List `ids`, ascending, in a file in the model's folder, and name the file in its
    configuration."""
    setattr(config, CONFIG_FIELD, FILE_NAME)
    (folder / FILE_NAME).write_text(json.dumps(list(ids)) + "\n")


def _read_ids(folder: Path, name: str, vocab_size: int) -> list[int]:
    file = folder / Path(str(name)).name
    try:
        ids = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ModelNotSupportedError(
            f"{CONFIG_FIELD}: cannot read a list of token IDs from {file}: {error}"
        ) from error
    if not isinstance(ids, list) or not all(isinstance(i, int) for i in ids) or not ids:
        raise ModelNotSupportedError(f"{file} is not a list of token IDs")
    if ids != sorted(set(ids)) or ids[0] < 0 or ids[-1] >= vocab_size:
        raise ModelNotSupportedError(
            f"{file}: token IDs must be in 0..{vocab_size - 1}, in ascending order"
        )
    return ids
