"""Early start of kernels while the previous one ends: programmatic dependent launch, from Hopper
on.

A pass is hundreds of short kernels, and a start takes a microsecond.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

_FIRST_CAPABILITY = (9, 0)


@triton.jit  # type: ignore[untyped-decorator]
def wait_for_inputs(STARTS_EARLY: tl.constexpr):  # type: ignore[no-untyped-def]
    """Wait until the previous kernel has written its results. Call it before any access to memory.
    The next kernel may start afterwards."""
    if STARTS_EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


def may_start_early(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= _FIRST_CAPABILITY


def launch_options(starts_early: bool) -> dict[str, Any]:
    """Return the launch options of a kernel that waits for its inputs. Triton's interpreter does
    not support launch_pdl."""
    options = {"STARTS_EARLY": starts_early}
    return options | {"launch_pdl": True} if starts_early else options
