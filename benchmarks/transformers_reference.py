"""Plain decoding beside transformers' own `generate()`: greedy, one sequence at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from rich.progress import track
from transformers import AutoModelForCausalLM

from deployments.cli.verify.compare import Answer, Difference, first_difference
from specdec_core.request import Request

PAD = 0


def compare_with_generate(
    folder: str, requests: Sequence[Request], answers: Sequence[Answer]
) -> list[Difference]:
    """Where the ids of `answers` first leave those of generate(), in float32."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    pairs = zip(requests, answers, strict=True)
    found = []
    for index, (request, answer) in enumerate(track(list(pairs), description="generate()")):
        prompt = torch.tensor([request.prompt_token_ids])
        output = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=request.params.max_tokens,
            do_sample=False,
            eos_token_id=sorted(request.stop_ids) or None,
            pad_token_id=PAD,
        )
        # generate() does not say why it ended.
        theirs = Answer(output[0, prompt.shape[1] :].tolist(), finish_reason=answer.finish_reason)
        difference = first_difference(index, theirs, answer)
        if difference is not None:
            found.append(difference)
    return found
