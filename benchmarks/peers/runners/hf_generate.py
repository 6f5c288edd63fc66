"""transformers' `generate()`: plain in static batches, assisted and prompt lookup at 1."""

from __future__ import annotations

import time
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM

from benchmarks.peers.messages import Decoded, Load, Turn
from benchmarks.peers.runners.serving import batches, in_order, serve

_NGRAM_MAX = 4


class GenerateRunner:
    def __init__(self, load: Load) -> None:
        torch.set_num_threads(load.threads)
        self._pad = load.unused_id
        self._target = _model(load.target, load.dtype)
        self._drafts = {name: _model(path, load.dtype) for name, path in load.drafts.items()}
        self._passes = 0
        self._target.register_forward_hook(self._count)
        self.facts = {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "dtype": str(self._target.dtype),
            "threads": str(torch.get_num_threads()),
            "batches": "static, prompts sorted by length, left-padded",
        }

    def _count(self, *_: object) -> None:
        self._passes += 1

    def decode(self, turn: Turn) -> Decoded:
        torch.manual_seed(turn.seed)
        options = self._options(turn)
        self._passes, order, answers = 0, [], []
        started = time.perf_counter()
        for places in batches(turn, by_length=True):
            order += places
            answers += self._generate([turn.prompts[place] for place in places], options)
        seconds = time.perf_counter() - started
        length = len(turn.prompts) * turn.max_tokens / self._passes
        return Decoded(
            seconds=seconds,
            token_ids=in_order(order, answers),
            figures={} if turn.method == "plain" else {"acceptance_length": length},
        )

    def _options(self, turn: Turn) -> dict[str, Any]:
        options: dict[str, Any] = {
            "max_new_tokens": turn.max_tokens,
            "do_sample": turn.temperature > 0,
            "pad_token_id": self._pad,
        }
        if turn.temperature > 0:
            options |= {"temperature": turn.temperature, "top_p": turn.top_p, "top_k": 0}
        if turn.method == "ngram":
            options["prompt_lookup_num_tokens"] = turn.spec_tokens
            options["max_matching_ngram_size"] = _NGRAM_MAX
        if turn.draft is not None:
            draft = self._drafts[turn.draft]
            draft.generation_config.num_assistant_tokens = turn.spec_tokens
            draft.generation_config.num_assistant_tokens_schedule = "constant"
            options["assistant_model"] = draft
        return options

    def _generate(self, rows: list[list[int]], options: dict[str, Any]) -> list[list[int]]:
        longest = max(len(row) for row in rows)
        padded = [[self._pad] * (longest - len(row)) + row for row in rows]
        mask = [[0] * (longest - len(row)) + [1] * len(row) for row in rows]
        output = self._target.generate(
            torch.tensor(padded), attention_mask=torch.tensor(mask), **options
        )
        ids: list[list[int]] = output[:, longest:].tolist()
        return ids


def _model(folder: str, dtype: str) -> Any:
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    # No id ends an answer: every engine decodes the same number of tokens.
    model.generation_config.eos_token_id = None
    return model.eval()


if __name__ == "__main__":
    serve(GenerateRunner)
