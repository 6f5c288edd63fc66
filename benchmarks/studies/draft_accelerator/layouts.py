"""The layouts of four accelerators by their names in `specdec simulate capacity --recommend`."""

from __future__ import annotations

from collections.abc import Mapping

PLAIN = "4 plain targets"
COLOCATED = "4 colocated"


def num_devices(layout: str) -> tuple[float, float]:
    """For targets and for drafts."""
    if " + " not in layout:
        return float(layout.split()[0]), 0.0
    targets, drafts = layout.split(" targets + ")
    return float(targets), 0.5 if "half" in drafts else float(drafts.split()[0])


def cost(layout: str, rate: float, target_price: float, draft_price: float) -> float:
    """Of a million tokens at `rate` a second, at prices per hour."""
    targets, drafts = num_devices(layout)
    return (targets * target_price + drafts * draft_price) / 3600 / rate * 1e6


def per_device(rates: Mapping[str, float]) -> dict[str, float]:
    return {name: rate / sum(num_devices(name)) for name, rate in sorted(rates.items())}
