"""The passes of a mixture of experts of true shape, if it fits: they go through transformers'
forward, which may not be recordable; then what is called recorded ran without a recording."""

from __future__ import annotations

import torch

from benchmarks.gpu_report.networks import num_parameters, random_network
from benchmarks.gpu_report.results import Findings, StepSkippedError
from benchmarks.gpu_report.roofline import Roof
from benchmarks.gpu_report.settings import Settings
from benchmarks.gpu_report.timing import bytes_per_second
from specdec_core.worker.cuda_graphs import capture

_FREE_BYTES = 6 * 2**30
"""For the cache and the passes."""


def measure(settings: Settings, findings: Findings) -> None:
    device, shape = torch.device(settings.device), settings.sizes.mixture
    findings.fact("shape", shape.name)
    findings.fact("parameters", num_parameters(shape))
    if device.type == "cuda":
        needed = 2 * num_parameters(shape) + _FREE_BYTES
        free, _ = torch.cuda.mem_get_info(device)
        if free < needed:
            raise StepSkippedError(
                f"{shape.name} needs {needed / 2**30:.0f} GiB, {free / 2**30:.0f} are free"
            )
    roof = Roof(settings.sizes, bytes_per_second(device), findings)
    network = random_network(shape, settings)
    for is_recorded in (True, False):
        roof.measure(
            network, settings.sizes.contexts[0], ("decode", "verify"), is_recorded=is_recorded
        )
        findings.fact("a capture failed", capture.have_failed())
