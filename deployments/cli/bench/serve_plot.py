"""Plot of a load: distribution of the latencies, and output tokens in each second."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deployments.cli.bench.figures import latencies, tokens_by_second
from deployments.cli.bench.load import LoadRun
from deployments.cli.plotting import picture

_SHOWN = ("ttft", "tpot", "e2el")


def plot(runs: Sequence[LoadRun], path: Path) -> None:
    with picture(path, 14, 4) as figure:
        *spreads, speed = figure.subplots(1, len(_SHOWN) + 1)
        for number, run in enumerate(runs, start=1):
            done = [record for record in run.records if record.error is None]
            for name, axes in zip(_SHOWN, spreads, strict=True):
                values = sorted(1000 * seconds for seconds in latencies(name, done))
                shares = [(place + 1) / len(values) for place in range(len(values))]
                axes.step(values, shares, where="post", label=f"run {number}")
            if done:
                speed.stairs(tokens_by_second(done), baseline=None)
        for name, axes in zip(_SHOWN, spreads, strict=True):
            axes.set(xlabel=f"{name.upper()} (ms)", ylabel="share of the requests", ylim=(0, 1.02))
        spreads[0].legend()
        speed.set(xlabel="second", ylabel="output tokens in it", ylim=(0, None))
