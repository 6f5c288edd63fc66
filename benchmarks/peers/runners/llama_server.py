"""llama.cpp by its own server, which batches; ids go in and come out, and nothing is streamed.

The server is in the runner's process group: it is stopped with it. Who drafts is settled when it
loads. What HTTP takes, one answer a sequence, is in the time.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.harness.ports import free_port, is_up
from benchmarks.peers.llama_cpp import LlamaCpp
from benchmarks.peers.messages import Decoded, Load, Turn
from benchmarks.peers.runners.serving import serve

_HOST = "127.0.0.1"
_POLL_S = 0.1
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class LlamaRunner:
    def __init__(self, load: Load) -> None:
        self._root = f"http://{_HOST}:{free_port()}"
        command = command_of(load, self._root)
        self._server = subprocess.Popen(command)
        while not is_up(f"{self._root}/health"):
            if self._server.poll() is not None:
                raise RuntimeError(f"{command[0]} ended with status {self._server.returncode}")
            time.sleep(_POLL_S)
        self.facts = {"command": " ".join(command), "weights": load.options["weights"]}

    def decode(self, turn: Turn) -> Decoded:
        started = time.perf_counter()
        with ThreadPoolExecutor(turn.batch_size) as streams:
            answers = list(streams.map(lambda prompt: self._ask(prompt, turn), turn.prompts))
        seconds = time.perf_counter() - started
        return Decoded(
            seconds=seconds,
            token_ids=[answer["tokens"] for answer in answers],
            figures=figures_of([answer["timings"] for answer in answers]),
        )

    def _ask(self, prompt: list[int], turn: Turn) -> Any:
        body = json.dumps(body_of(prompt, turn)).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{self._root}/completion", body, headers)
        with _OPENER.open(request) as answer:
            return json.load(answer)


def command_of(load: Load, root: str) -> list[str]:
    """Each sequence has a slot of its own, of the longest length."""
    command = [str(LlamaCpp(Path(load.options["llama_cpp"])).server), "-m", load.target]
    command += ["--host", _HOST, "--port", root.rsplit(":", 1)[1], "--no-webui"]
    command += ["-np", str(load.max_batch_size), "-t", str(load.threads)]
    command += ["-c", str(load.max_batch_size * load.max_model_len)]
    if load.method == "ngram":
        command += ["--spec-type", "ngram-simple"]
        command += ["--spec-ngram-simple-size-m", str(load.spec_tokens)]
    if load.method == "draft_model":
        (draft,) = load.drafts.values()
        command += ["--spec-type", "draft-simple", "-md", draft]
        command += ["--spec-draft-n-max", str(load.spec_tokens)]
    return command


def body_of(prompt: list[int], turn: Turn) -> dict[str, Any]:
    return {
        "prompt": prompt,
        "n_predict": turn.max_tokens,
        "ignore_eos": True,
        "temperature": turn.temperature,
        "top_p": turn.top_p,
        "top_k": 0,
        "min_p": 0.0,
        "seed": turn.seed,
        "return_tokens": True,
        # Turns repeat their prompts; nobody here keeps anything between turns.
        "cache_prompt": False,
    }


def figures_of(timings: list[dict[str, Any]]) -> dict[str, float]:
    drafted = sum(each.get("draft_n", 0) for each in timings)
    accepted = sum(each.get("draft_n_accepted", 0) for each in timings)
    return {"drafted": drafted, "accepted": accepted} if drafted else {}


if __name__ == "__main__":
    serve(LlamaRunner)
