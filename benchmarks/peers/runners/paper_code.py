"""The public code of arXiv 2510.22876, from a checkout that the user names: its EXSPEC on the CPU.

Written for CUDA, text prompts and transformers 4.51. What is different here stays outside its
files: waiting for the device is nothing, prompts and answers are ids behind a tokenizer's face, and
the models are loaded in --dtype where its script has float16.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.peers.messages import Decoded, Load, Turn
from benchmarks.peers.runners.serving import in_order, serve

_WINDOW_PER_ROW = 3
"""As in the command of its README: 48 sequences for 16 rows."""
_NEVER = -1


class _Ids:
    """What EXSPEC uses of a tokenizer, over ids that are known already."""

    eos_token_id = _NEVER
    """Found in no answer: every engine decodes the same number of tokens."""

    def __init__(self, pad_token_id: int) -> None:
        self.pad_token_id = pad_token_id

    def __call__(self, prompt: list[int], **_: object) -> SimpleNamespace:
        return SimpleNamespace(input_ids=torch.tensor([prompt]))

    def decode(self, ids: torch.Tensor, **_: object) -> list[int]:
        return ids.tolist()


class PaperRunner:
    def __init__(self, load: Load) -> None:
        torch.set_num_threads(load.threads)
        if not torch.cuda.is_available():
            torch.cuda.synchronize = lambda *_: None
        sys.path.insert(0, load.options["checkout"])
        self._exspec = import_module("src.custom.cross_batch_speculative").run_cross_batch_inference
        self._ids = _Ids(load.unused_id)
        self._max_model_len = load.max_model_len
        self._target = _model(load.target, load.dtype)
        self._drafts = {name: _model(path, load.dtype) for name, path in load.drafts.items()}
        self.facts = {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "dtype": load.dtype,
            "threads": str(torch.get_num_threads()),
            "checkout": load.options["checkout"],
            "batches": f"sort_by_length, window of {_WINDOW_PER_ROW} sequences a row",
        }

    def decode(self, turn: Turn) -> Decoded:
        assert turn.draft is not None
        with torch.inference_mode():
            told = self._exspec(
                target_model=self._target,
                draft_model=self._drafts[turn.draft],
                tokenizer=self._ids,
                prompts=turn.prompts,
                max_new_tokens=turn.max_tokens,
                batch_size=turn.batch_size,
                n_draft_tokens=turn.spec_tokens,
                device="cpu",
                use_cache=True,
                verbose_acceptance=False,
                enable_profiling=False,
                scheduling_strategy="cross_batch",
                sort_by_length=True,
                window_size=_WINDOW_PER_ROW * turn.batch_size,
                max_input_len=self._max_model_len,
            )
        answers, seconds, _, share_accepted, *_ = told
        order = sorted(range(len(turn.prompts)), key=lambda place: len(turn.prompts[place]))
        # Its last round may commit one token more than were asked for.
        cut = [ids[: turn.max_tokens] for ids in answers]
        return Decoded(
            seconds=seconds,
            token_ids=in_order(order, cut),
            figures={"share_accepted": share_accepted},
        )


def _model(folder: str, dtype: str) -> Any:
    """As its script loads them, but for dtype and device. Newer releases of transformers have
    another name for the base of the rotary embedding."""
    written = json.loads((Path(folder) / "config.json").read_text())
    theta = written.get("rope_parameters", {}).get("rope_theta") or written["rope_theta"]
    config = LlamaConfig(**{**written, "rope_theta": theta})
    model = LlamaForCausalLM.from_pretrained(
        folder, config=config, torch_dtype=getattr(torch, dtype)
    )
    model.generation_config.eos_token_id = None
    return model.eval()


if __name__ == "__main__":
    serve(PaperRunner)
