"""Builds csrc/sampler.c and calls it: the coupled choice from logits in the CPU's memory.

A process uses it after `load_choice_kernels`. The IDs equal those of sampler.py in either case.
"""

from __future__ import annotations

import logging
import math
import struct
import subprocess
from array import array
from collections.abc import Sequence
from ctypes import CDLL, POINTER, Structure, byref, c_char_p, c_float, c_int64, c_void_p
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from specdec_core.kernels.build import FLAGS, build_library, reason_of
from specdec_core.sampling_params import SampleRow, SamplingRules

UNDECIDED = -2
"""Result for a row that is too close to call without PyTorch's own logarithms."""
_SOURCE = Path(__file__).parents[1] / "kernels" / "csrc" / "sampler.c"
_ROW = struct.Struct("@PQQdqffq")
"""`Row` of csrc/sampler.c."""

_DTYPES = (torch.float32, torch.bfloat16)
"""Types of logits that the kernels read."""

_logger = logging.getLogger(__name__)


class _Penalties(Structure):
    """`Penalties` of csrc/sampler.c."""

    _fields_ = (
        ("logits", c_void_p),
        *((name, c_int64) for name in ("stride", "num_ids", "num_rows")),
        *((name, c_void_p) for name in ("history", "positions")),
        ("prompt_len", c_int64),
        *((name, c_float) for name in ("repetition", "frequency", "presence")),
    )


class ChoiceKernels:
    """Kernels of csrc/sampler.c, loaded in this process."""

    def __init__(self, library: CDLL) -> None:
        self._choose = library.specdec_choose
        self._choose.argtypes = (c_char_p, c_int64, c_int64, c_void_p, c_int64)
        self._choose.restype = None
        self._penalise = library.specdec_penalise
        self._penalise.argtypes = (POINTER(_Penalties),)
        self._penalise.restype = None

    def choose(self, z_NV: Tensor, rows: Sequence[SampleRow]) -> list[int]:
        """Return the choice of every row of processed logits, NO_CHOICE or UNDECIDED."""
        if z_NV.dtype not in _DTYPES or z_NV.stride(1) != 1:
            z_NV = _readable(z_NV)
        address, step = z_NV.data_ptr(), z_NV.stride(0) * z_NV.element_size()
        is_bf16 = z_NV.dtype == torch.bfloat16
        records = []
        for row in rows:
            params = row.rules.params
            min_x = math.log(params.min_p) if params.min_p > 0.0 else -math.inf
            cut = params.top_p, params.top_k, params.temperature, min_x
            records.append(_ROW.pack(address, params.seed, row.position, *cut, is_bf16))
            address += step
        chosen, threads = (c_int64 * len(rows))(), torch.get_num_threads()
        self._choose(b"".join(records), len(rows), z_NV.shape[1], chosen, threads)
        return list(chosen)

    def penalise(
        self,
        z_GV: Tensor,
        rules: SamplingRules,
        history: Sequence[int],
        positions: Sequence[int],
    ) -> None:
        """Apply the penalties of one sequence to its rows, float32, in place."""
        assert z_GV.dtype == torch.float32
        assert z_GV.stride(1) == 1
        params = rules.params
        ids, token_positions = array("i", history[: max(positions)]), array("q", positions)
        assert max(ids, default=0) < z_GV.shape[1], "an id of the history is outside the logits"
        arguments = _Penalties(
            logits=z_GV.data_ptr(),
            stride=z_GV.stride(0),
            num_ids=z_GV.shape[1],
            num_rows=z_GV.shape[0],
            history=ids.buffer_info()[0],
            positions=token_positions.buffer_info()[0],
            prompt_len=rules.prompt_len,
            repetition=params.repetition_penalty,
            frequency=params.frequency_penalty,
            presence=params.presence_penalty,
        )
        self._penalise(byref(arguments))


def _readable(z_NV: Tensor) -> Tensor:
    """Return the logits in a type and with strides that the kernels read."""
    return (z_NV if z_NV.dtype in _DTYPES else z_NV.float()).contiguous()


def choice_kernels_for(logits: Tensor) -> ChoiceKernels | None:
    """Return the kernels if this process has loaded them and they can read `logits`, or None."""
    is_loaded = load_choice_kernels.cache_info().currsize > 0
    return load_choice_kernels() if is_loaded and logits.device.type == "cpu" else None


@lru_cache(maxsize=1)
def load_choice_kernels() -> ChoiceKernels | None:
    """Load the kernels. From then on, this process uses them for sampling.

    If they cannot be built, log a warning and return None. PyTorch samples then.
    """
    try:
        return build_choice_kernels()
    except (OSError, subprocess.SubprocessError) as error:
        _logger.warning(
            "CPU sampling kernels are unavailable; using slower PyTorch operations: %s",
            reason_of(error),
        )
    return None


def build_choice_kernels(flags: Sequence[str] = FLAGS) -> ChoiceKernels:
    """Build the kernels, unless this machine has a build. Raises OSError or SubprocessError."""
    library, _ = build_library(_SOURCE, flags)
    return ChoiceKernels(library)
