"""Results made by hand."""

from __future__ import annotations

from typing import Any

from benchmarks.gpu_report.results import Result, Status

SPEEDS = {8: 1.7, 32: 1.4, 64: 1.2, 128: 1.05}


def result(step: str, **fields: Any) -> Result:
    return Result(
        step=step,
        limit_s=60.0,
        environment={"gpu": "NVIDIA H100", "commit": "abc"},
        asked={},
        **{"status": Status.DONE, **fields},
    )


def passes(of_bound: float) -> list[dict[str, Any]]:
    return [
        {"work": work, "mode": "recorded", "context": context, "rows": rows, "of_bound": share}
        for work in ("decode", "verify", "draft")
        for context, share in ((2048, 0.1), (512, of_bound))
        for rows in (8, 32)
    ]


def decoding(ratios: dict[int, float], exact_over_fast: float = 0.95) -> list[dict[str, Any]]:
    rows = []
    for count, ratio in ratios.items():
        for numerics, speed in (("fast", 1000.0), ("exact", 1000.0 * exact_over_fast)):
            cell = {"numerics": numerics, "rows": count}
            plain = {"method": "plain", "acceptance": None, "over_plain": 1.0}
            exspec = {"method": "exspec", "acceptance": 0.7, "over_plain": ratio}
            rows.append({**cell, **plain, "tokens_per_s": speed})
            rows.append({**cell, **exspec, "tokens_per_s": speed * ratio})
    return rows


def token_ids(what: str, equal: int, prompts: int = 64) -> list[dict[str, Any]]:
    return [
        {"what": what, "way": "plain", "rows": 8, "prompts": 64, "equal": 64},
        {"what": what, "way": "exspec", "rows": 64, "prompts": prompts, "equal": equal},
    ]


def served(equal: int = 64, over_without: float = 0.99) -> Result:
    rows = [{"rows": 8, "over_without": 1.2}, {"rows": 64, "over_without": over_without}]
    return result("served", tables={"token IDs": token_ids("the service", equal), "decoding": rows})


def good_results() -> dict[str, Result]:
    """Every goal is met."""
    ids = token_ids("recorded passes", 64) + token_ids("eager passes", 64)
    kernels = [{"work": "decode alone", "kernel": "gemm<bf16>", "share": 0.8}]
    made = [
        result("checks", tables={"checks": [{"check": "attention", "holds": True}]}),
        result("gpu_tests", facts={"passed": 20}),
        result("roofline", tables={"passes": passes(0.75)}),
        result("speed", tables={"decoding": decoding(SPEEDS)}),
        result("exactness", tables={"token IDs": ids}),
        result("kernels", tables={"kernels": kernels}),
        result("memory", facts={"taken over planned": 0.98}),
        result("real_model", tables={"token IDs": token_ids("model with weights", 64)}),
        served(),
    ]
    return {one.step: one for one in made}
