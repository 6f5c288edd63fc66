"""Send times of a load generator's requests, as a function of rate, burstiness and seed alone."""

from __future__ import annotations

import math
import random
from itertools import accumulate


def arrivals(num_requests: int, *, rate: float, burstiness: float, seed: int) -> list[float]:
    """Return the send times in seconds after the start, ascending; `rate` is per second.

    The gaps are gamma-distributed. Burstiness 1 is a Poisson process. Below 1 requests come in
    bursts, above it evenly, and at infinity like a clock. The last request always comes at
    num_requests / rate, as in vLLM, so that no seed makes a run faster than another one.
    """
    if math.isinf(rate):
        return [0.0] * num_requests
    rng = random.Random(seed)
    sent = list(accumulate(_gap(rng, burstiness) for _ in range(num_requests)))
    total = sent[-1] if sent else 0.0
    # A burst so dense that every gap is 0 in floating point comes at once.
    scale = num_requests / rate / total if total else 0.0
    return [seconds * scale for seconds in sent]


def _gap(rng: random.Random, burstiness: float) -> float:
    """Draw a gap with mean 1."""
    if math.isinf(burstiness):
        return 1.0
    return rng.gammavariate(burstiness, 1.0 / burstiness)
