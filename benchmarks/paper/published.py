"""The paper's figures, as far as they are known here, and what of its tables was not run.

Figures are those of arXiv 2510.22876 v3 and of the logs quoted in its public code. A figure that is
not here was not found, and the tables say so; nothing is filled in from memory.
"""

from __future__ import annotations

UNKNOWN = "not known here"

EXACT_MATCH = "95 % equal outputs, over its pairs"
ALIGNMENT_SHARE = {4: "28 %", 8: "about 40 %", 16: "about 40 %"}
"""EQSPEC, by batch size."""
GROUPING_RANDOM = {2: "24 %", 16: "about 0 %", 32: "about 0 %"}
"""EXSPEC, by batch size."""
GROUPING_EQUAL = "in 96 % to 44 %"
"""EXSPEC, over its batch sizes; which figure is whose is not known here."""
ONLINE_P99 = {2: {"eqspec": "19 s", "exspec-padded": "134 s"}}
"""Latency at the 99th percentile, by batch size and algorithm."""

PAPER = {
    "equivalence": (
        "480 Spec-Bench prompts as raw first turns, 50 tokens, K = 5, batch 4 and 8, float16, "
        f"greedy. The paper: {EXACT_MATCH}, the rest put down to floating point; two earlier batch "
        "implementations 0 to 3.5 %. A partial match is the share of the reference's tokens before "
        "the first difference."
    ),
    "overhead": (
        "EQSPEC, 100 Spec-Bench prompts, 128 tokens, K = 5. The paper: alignment takes 28 % of the "
        "time at batch 4 and about 40 % at 8 to 16; for batch 1 and 2 its figures are "
        f"{UNKNOWN}. `exspec` keeps KV in place: it moves 0 bytes by construction, and the table "
        "checks it."
    ),
    "throughput": (
        "480 Spec-Bench prompts, 128 tokens, K = 5, W = 48. The paper: up to 3 times the tokens a "
        "second at batch 8 of those at batch 1; EXSPEC takes 1.54 times fewer steps than EQSPEC, "
        f"each 1.07 times faster. Its ratios to plain decoding at the same batch are {UNKNOWN}."
    ),
    "grouping": (
        "EXSPEC, 100 Multi30k captions sorted by length, 50 tokens, K = 5, W = 50, batch 2 to 32. "
        "The paper: with random lengths 24 % of the steps find a group of equal length at batch 2 "
        "and about 0 % from batch 16 on; with equal lengths 96 % to 44 %. Its acceptance there is "
        f"{UNKNOWN}; here it is arranged: each drafted token is right with probability p."
    ),
    "window": f"W = 48 at B = 16 is what the paper uses; figures of other windows are {UNKNOWN}.",
    "online": (
        "The paper: at batch 2 EXSPEC starves, with a 99th percentile of 134 s against 19 s of "
        f"EQSPEC; its arrival rate and its other percentiles are {UNKNOWN}."
    ),
}
"""How the paper measured a table and what it found, in words."""

NOT_RUN = (
    "The paper's own pairs (Vicuna-7B + 68M, Qwen3-8B + 0.6B, GLM-4-9B + 0.6B): their weights are "
    "not on the machine that measured, and it has no GPU. `docs/model_pairs.md` has ready "
    "configurations; the same commands take `--pair lmsys/vicuna-7b-v1.3,double7/vicuna-68m "
    "--device cuda`."
)
