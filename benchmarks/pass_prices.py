"""Price of a verification row on this machine, as a table and JSON.

OMP_NUM_THREADS=2 python -m benchmarks.pass_prices --output F
OMP_NUM_THREADS=2 python -m benchmarks.pass_prices --tokens 16 17   (K of 15 against 16)
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

import torch
from rich.progress import Progress

from benchmarks.harness.commands import write_json
from benchmarks.harness.machine import commit, cpu_name
from benchmarks.row_prices import CACHED, TOKENS, Price, prices, table
from deployments.demo.models import resolve_model
from specdec_core.loading.loader import DType, LoadConfig, load_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m", help="Folder, hub ID or demo name.")
    parser.add_argument("--dtype", default="bfloat16", choices=[one.value for one in DType])
    parser.add_argument("--rounds", type=int, default=15, help="Timed passes of each size.")
    parser.add_argument(
        "--tokens",
        type=int,
        nargs="+",
        default=list(TOKENS),
        help="Tokens of a sequence. Passes of 1 are always timed.",
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path, help="JSON file.")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    load = LoadConfig(dtype=DType(asked.dtype), kv_cache_tokens=32_768, max_model_len=2_048)
    model = load_model(resolve_model(asked.model), load).model
    found: list[Price] = []
    with Progress() as progress:
        task = progress.add_task("rounds", total=len(CACHED) * (asked.rounds + 1))
        for cached in CACHED:
            found += prices(
                model, cached, asked.rounds, asked.tokens, on_round=lambda: progress.advance(task)
            )
    print(table(found))
    told = {name: value for name, value in vars(asked).items() if name != "output"}
    told |= {"commit": commit(), "processor": cpu_name()}
    write_json({**told, "prices": [asdict(one) for one in found]}, asked.output)


if __name__ == "__main__":
    main()
