"""A runner without an engine, whose target's name says what it does wrong."""

from __future__ import annotations

import os
import threading
import time

from benchmarks.peers.messages import Decoded, Load, Turn
from benchmarks.peers.runners.serving import serve


class FakeRunner:
    """Answers every prompt with its length, over and over."""

    def __init__(self, load: Load) -> None:
        print("a banner of the engine")
        if load.target == "no-model":
            raise OSError("there is no such model")
        if load.target == "spins":
            threading.Thread(target=_spin, daemon=True).start()
        self._target = load.target
        self.facts = {"threads": str(load.threads), "pid": str(os.getpid())}

    def decode(self, turn: Turn) -> Decoded:
        print("a progress bar of the engine")
        if turn.method == "dies":
            os._exit(3)
        if turn.method == "hangs":
            time.sleep(60)
        if turn.method == "fails":
            raise RuntimeError("out of blocks")
        ids = [[len(prompt)] * turn.max_tokens for prompt in turn.prompts]
        return Decoded(seconds=0.5, token_ids=ids, figures={"acceptance_length": 1.5})


def _spin() -> None:
    while True:
        pass


if __name__ == "__main__":
    serve(FakeRunner)
