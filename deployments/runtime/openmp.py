"""Sets how long OpenMP's threads spin before they sleep. libgomp reads it when torch is
imported."""

from __future__ import annotations

import os

_SPIN_COUNT = "10000"
"""Threads of two torch processes that spin on the same cores slow each other 10 to 100 times.

In one process they spin together with the threads of our own kernels. Without this setting, plain
decoding of 8 rows on two cores reached 0.91 of its speed. So short a spin costs nothing where the
threads alternate.
"""


def short_spin() -> dict[str, str]:
    """Return the environment of a process that will import torch. A value set there already
    wins."""
    return {"GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT", _SPIN_COUNT)}
