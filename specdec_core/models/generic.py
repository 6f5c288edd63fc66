"""The forward of transformers itself, with its attention replaced by ours.

This is the only module that touches the internals of transformers: its attention hook and the
keyword arguments that a model passes to it. The keys and values are in our blocks, so a model runs
without a transformers cache and without a transformers mask.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import sdpa_mask

from specdec_core.errors import ModelNotSupportedError
from specdec_core.layers.attention.backend import Attention, Pools
from specdec_core.layers.attention.metadata import AttentionMetadata
from specdec_core.model import ForwardOutput

ATTENTION_NAME = "specdec_ragged"
_UNSUPPORTED_ATTENTION_ARGUMENTS = ("softcap", "s_aux", "position_bias")


class _Pass(NamedTuple):
    """Arguments of `decode` on their way through transformers to the attention of each layer."""

    metadata: AttentionMetadata
    pools: Pools
    attention: Attention


def _ragged_attention_forward(
    module: torch.nn.Module,
    query_1HTD: Tensor,
    key_1KTD: Tensor,
    value_1KTD: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    ragged_pass: _Pass | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Compute the attention of a hooked model. `forward` passes the pass on as a keyword argument.

    Without one, for example in `generate()`, the model still works, as with "sdpa".
    """
    if ragged_pass is None:
        sdpa = AttentionInterface()["sdpa"]
        output: tuple[Tensor, Tensor | None] = sdpa(
            module, query_1HTD, key_1KTD, value_1KTD, attention_mask, scaling=scaling, **kwargs
        )
        return output
    for name in _UNSUPPORTED_ATTENTION_ARGUMENTS:
        if kwargs.get(name) is not None:
            raise ModelNotSupportedError(f"attention with {name} is not supported")
    scaling = query_1HTD.shape[-1] ** -0.5 if scaling is None else scaling
    output_THD = ragged_pass.attention.attend(
        ragged_pass.metadata,
        ragged_pass.pools[int(module.layer_idx)],  # type: ignore[arg-type]
        query_1HTD[0].transpose(0, 1),
        key_1KTD[0].transpose(0, 1),
        value_1KTD[0].transpose(0, 1),
        scaling,
    )
    return output_THD.unsqueeze(0), None


AttentionInterface.register(ATTENTION_NAME, _ragged_attention_forward)
AttentionMaskInterface.register(ATTENTION_NAME, sdpa_mask)


class HookedDecoder:
    """Any full-attention causal LM of transformers; implements Decoder."""

    def __init__(self, model: PreTrainedModel) -> None:
        """Hook `model`, which other code may still use."""
        self._model = model.eval()
        # A mask of 4 dimensions counts as prepared, so transformers builds none.
        self._prepared_mask = torch.empty(1, 1, 1, 1, device=model.device)
        model.set_attn_implementation(ATTENTION_NAME)

    def decode(
        self, metadata: AttentionMetadata, pools: Pools, attention: Attention, taps: tuple[int, ...]
    ) -> ForwardOutput:
        """See Decoder."""
        output = self._model(
            input_ids=metadata.input_ids,
            position_ids=metadata.position_ids,
            attention_mask=self._prepared_mask,
            use_cache=False,
            logits_to_keep=metadata.logits_index,
            output_hidden_states=bool(taps),
            ragged_pass=_Pass(metadata, pools, attention),
        )
        return ForwardOutput(output.logits[0], tuple(output.hidden_states[tap][0] for tap in taps))
