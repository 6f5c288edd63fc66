"""specdec's engine in its own process: plain decoding, and EXSPEC with every draft method."""

from __future__ import annotations

from dataclasses import replace

import torch

from benchmarks.peers.messages import Decoded, Load, Turn
from benchmarks.peers.runners.serving import serve
from deployments.cli.bench.offline_runs import run_cell
from deployments.cli.verify.cells import PLAIN, Cell, Point
from specdec_core.config import (
    WINDOW_PER_ROW,
    KPolicyName,
    Numerics,
    SchedulerConfig,
    SpecMethod,
    SpeculationConfig,
)
from specdec_core.loading.loader import DType, LoadConfig, LoadedPair, load_model
from specdec_core.request import Request
from specdec_core.sampling_params import SamplingParams


class SpecdecRunner:
    def __init__(self, load: Load) -> None:
        torch.set_num_threads(load.threads)
        self._policy = KPolicyName(load.options["spec_policy"])
        config = LoadConfig(
            dtype=DType(load.dtype),
            device="cpu",
            max_model_len=load.max_model_len,
            kv_cache_tokens=WINDOW_PER_ROW * load.max_batch_size * load.max_model_len,
            numerics=Numerics(load.options["numerics"]),
        )
        self._target = load_model(load.target, config)
        draft_config = replace(config, numerics=Numerics.FAST)
        self._drafts = {
            name: load_model(folder, draft_config) for name, folder in load.drafts.items()
        }
        self.facts = {
            "torch": torch.__version__,
            "dtype": load.dtype,
            "threads": str(torch.get_num_threads()),
            "numerics": load.options["numerics"],
            "K": f"up to what a cell names, policy {self._policy}",
            "fingerprint": self._target.fingerprint,
        }

    def decode(self, turn: Turn) -> Decoded:
        cell = _cell(turn)
        pair = LoadedPair(
            target=self._target, draft=self._drafts[turn.draft] if turn.draft else None
        )
        run = run_cell(pair, cell, self._pool_config(cell, turn), _requests(turn), lambda _: None)
        stats = run.stats
        return Decoded(
            seconds=run.seconds,
            token_ids=[list(run.tokens[str(place)]) for place in range(len(turn.prompts))],
            figures={
                "acceptance_length": stats.mean_acceptance_length,
                "drafted": stats.num_drafted,
                "accepted": stats.num_accepted,
            }
            if stats.num_drafted
            else {},
        )

    def _pool_config(self, cell: Cell, turn: Turn) -> SchedulerConfig:
        return SchedulerConfig(
            max_group_size=turn.batch_size,
            window=WINDOW_PER_ROW * turn.batch_size,
            max_queued=len(turn.prompts),
            speculation=SpeculationConfig(
                method=cell.point.method,
                num_draft_tokens=turn.spec_tokens,
                k_policy=self._policy,
            ),
        )


def _cell(turn: Turn) -> Cell:
    method = SpecMethod.NONE if turn.method == "plain" else SpecMethod(turn.method)
    algorithm = PLAIN if method is SpecMethod.NONE else "exspec"
    return Cell(algorithm, Point(method, turn.spec_tokens, turn.batch_size, turn.temperature))


def _requests(turn: Turn) -> list[Request]:
    params = SamplingParams(
        temperature=turn.temperature,
        top_p=turn.top_p,
        seed=turn.seed,
        max_tokens=turn.max_tokens,
        ignore_eos=True,
    )
    return [
        Request(request_id=str(place), prompt_token_ids=tuple(prompt), params=params)
        for place, prompt in enumerate(turn.prompts)
    ]


if __name__ == "__main__":
    serve(SpecdecRunner)
