"""How long OpenMP's threads spin before they sleep: libgomp reads it when torch is imported."""

from __future__ import annotations

import os

_SPIN_COUNT = "10000"
"""Threads of two torch processes that spin on the same cores slow each other 10 to 100 times. In
one process they spin beside those of our own kernels: plain decoding of 8 rows on two cores made
0.91 of what it makes with this. So short a spin costs nothing where they alternate."""


def short_spin() -> dict[str, str]:
    """Environment of a process that will import torch. What the environment says wins."""
    return {"GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT", _SPIN_COUNT)}
