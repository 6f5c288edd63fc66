"""OpenVINO GenAI: a batch is a call, because it runs all prompts of a call at once: 16 prompts with
max_num_seqs=1 make 10 times the tokens per second of one. Who drafts is settled when it loads."""

from __future__ import annotations

import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy
import openvino_genai
from openvino import Tensor

from benchmarks.peers.messages import Decoded, Load, Turn
from benchmarks.peers.runners.serving import serve

_NGRAM_MAX = 4
_MODEL = "openvino_model.xml"


class OpenvinoRunner:
    def __init__(self, load: Load) -> None:
        properties: dict[str, Any] = {
            "INFERENCE_PRECISION_HINT": load.options["precision"],
            "INFERENCE_NUM_THREADS": load.threads,
        }
        self.facts = {
            "openvino-genai": version("openvino-genai"),
            "weights": load.options["weights"],
            "dtype": f"INFERENCE_PRECISION_HINT={load.options['precision']}, default KV cache",
            "threads": f"INFERENCE_NUM_THREADS={load.threads}",
            "batches": "a call of generate() each: it runs all prompts of a call at once",
        }
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = 1
        scheduler.max_num_seqs = load.max_batch_size
        scheduler.enable_prefix_caching = False
        if load.method == "ngram":
            properties["prompt_lookup"] = True
        if load.method == "draft_model":
            (draft,) = load.drafts.values()
            properties["draft_model"] = openvino_genai.draft_model(
                _converted(draft), "CPU", **properties
            )
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(
            _converted(load.target), scheduler, "CPU", properties
        )

    def decode(self, turn: Turn) -> Decoded:
        config = _generation_config(turn)
        prompts = [Tensor(numpy.array([ids], dtype=numpy.int64)) for ids in turn.prompts]
        answers: list[Any] = []
        started = time.perf_counter()
        for first in range(0, len(prompts), turn.batch_size):
            part = prompts[first : first + turn.batch_size]
            answers += self._pipeline.generate(part, [config] * len(part))
        seconds = time.perf_counter() - started
        return Decoded(
            seconds=seconds,
            token_ids=[list(answer.m_generation_ids[0]) for answer in answers],
        )


def _converted(gguf: str) -> str:
    """The folder of a GGUF file, with OpenVINO's own format in it, which is made once."""
    folder = Path(gguf).parent
    if not (folder / _MODEL).is_file():
        openvino_genai.LLMPipeline(gguf, "CPU", enable_save_ov_model=True)
    return str(folder)


def _generation_config(turn: Turn) -> Any:
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = turn.max_tokens
    config.ignore_eos = True
    config.apply_chat_template = False
    config.do_sample = turn.temperature > 0
    if config.do_sample:
        config.temperature, config.top_p, config.rng_seed = turn.temperature, turn.top_p, turn.seed
    if turn.method != "plain":
        config.num_assistant_tokens = turn.spec_tokens
    if turn.method == "ngram":
        config.max_ngram_size = _NGRAM_MAX
    return config


if __name__ == "__main__":
    serve(OpenvinoRunner)
