"""The model card of a draft: README.md with everything needed to make the draft again."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass, fields
from typing import Any

import torch
import transformers

from specdec_core.training.acceptance import REPORTED_K, HeldOutAcceptance

_TEMPLATE = """---
base_model: {target_name}
library_name: transformers
tags: [speculative-decoding, draft]
---

# Draft model for {target_name}

A draft for speculative decoding: it guesses, the target decides. Made with `specdec train-draft`
from text that the target wrote itself; of no use for writing text on its own.

{num_trained_parameters:,} trained parameters of {num_parameters:,}; {vocabulary}.

| held-out documents: {num_held_out} | |
|---|---|
| greedy choices equal to the target's | {held_out.greedy:.4f} |
| tokens per round, greedy, K = {reported_k} | {held_out.length:.3f} |
| mass shared with the target at temperature 1, at least | {held_out.overlap:.4f} |
| accepted by coupled sampling at temperature 1, at least | {held_out.coupled:.4f} |

Measured on the target's own answers, with float32 weights, before they were rounded to bfloat16.

Text: {num_documents} documents, {num_tokens} ids, {num_answer_tokens} of them answers. Trained on
these and on {num_turn_tokens} ids of made-up user turns. {num_excluded} documents were dropped for
sharing a run of words with an excluded text.
Training: {num_steps} steps, last loss {loss:.4f}, {seconds:.0f} s in the last session.

## Made with

```sh
{command}
```

```json
{settings}
```
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """Facts that a card reports, and the settings."""

    target_name: str
    command: str
    settings: dict[str, Any]
    held_out: HeldOutAcceptance
    num_held_out: int
    num_documents: int
    num_tokens: int
    num_answer_tokens: int
    num_turn_tokens: int
    num_excluded: int
    num_steps: int
    loss: float
    seconds: float
    num_parameters: int
    num_trained_parameters: int
    num_proposed_ids: int | None
    vocab_size: int
    device: str


def model_card(facts: CardFacts) -> str:
    some = f"proposes {facts.num_proposed_ids} of {facts.vocab_size} ids"
    settings = {**facts.settings, "made_on": _machine(facts.device)}
    values = {
        **{each.name: getattr(facts, each.name) for each in fields(facts)},
        "vocabulary": "proposes any id" if facts.num_proposed_ids is None else some,
        "reported_k": REPORTED_K,
        "settings": json.dumps(settings, indent=2, default=str),
    }
    return _TEMPLATE.format_map(values)


def _machine(device: str) -> dict[str, str | int]:
    return {
        "device": device,
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
