"""Plot of an evaluation: speed-up and acceptance length over K."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deployments.cli.plotting import picture


def plot(record: Mapping[str, Any], path: Path) -> None:
    points = record["points"]
    k = [point["num_draft_tokens"] for point in points]
    with picture(path, 9, 4) as figure:
        speed, length = figure.subplots(1, 2)
        for name in ("measured_speedup", "predicted_speedup"):
            speed.plot(k, [point[name] for point in points], marker="o", label=name.split("_")[0])
        speed.axhline(1.0, color="grey", linewidth=1)
        speed.set(xlabel="K", ylabel="tokens/s over plain decoding")
        speed.legend()
        length.plot(k, [point["mean_acceptance_length"] for point in points], marker="o")
        length.set(xlabel="K", ylabel="tokens per round with a proposal")
        figure.suptitle(str(record["verdict"]).partition(";")[0])
