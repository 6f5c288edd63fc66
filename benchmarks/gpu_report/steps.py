"""What runs, in which order, and how long it may take."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from benchmarks.gpu_report.results import Findings
from benchmarks.gpu_report.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Runs in a process of its own: `measure(settings, findings)` of its module."""

    name: str
    what: str
    limit_s: float
    asks: tuple[str, ...] = ()
    """Names of the settings whose change makes its result another one."""
    module: str = ""
    """Default: the one named like the step."""

    def asked(self, settings: Settings) -> dict[str, str | bool | None]:
        return {name: getattr(settings, name) for name in self.asks}

    def measure(self, settings: Settings, findings: Findings) -> None:
        name = self.module or f"benchmarks.gpu_report.{self.name}"
        importlib.import_module(name).measure(settings, findings)


STEPS = (
    Step(name="machine", what="the GPU, its memory and its bandwidth", limit_s=30),
    Step(name="checks", what="self-checks: attention, recording, exact numerics", limit_s=60),
    Step(name="gpu_tests", what="tests that need a GPU", limit_s=100),
    Step(name="roofline", what="passes by rows and contexts against bandwidth", limit_s=180),
    Step(name="prices", what="price of a verification row", limit_s=60),
    Step(name="speed", what="plain and speculative tokens/s", limit_s=330),
    Step(name="exactness", what="token IDs of every drafter against plain decoding", limit_s=220),
    Step(name="kernels", what="kernels and gaps, from a profile", limit_s=90),
    Step(name="memory", what="memory planned against memory taken", limit_s=60),
    Step(
        name="real_model",
        what="a model with weights: token IDs and tokens/s",
        limit_s=120,
        asks=("model", "draft", "has_random_model"),
    ),
    Step(
        name="served",
        what="`specdec serve` with that model: token IDs and tokens/s",
        limit_s=180,
        asks=("model", "draft", "has_random_model"),
    ),
    Step(
        name="peer",
        what="the same prompts on a running server",
        limit_s=60,
        asks=("model", "peer"),
    ),
    Step(name="mixture", what="a mixture of experts against bandwidth", limit_s=70),
)
"""A mixture of experts comes last: it takes most of the memory, and no goal is about it."""
TOTAL_S = sum(step.limit_s for step in STEPS)
