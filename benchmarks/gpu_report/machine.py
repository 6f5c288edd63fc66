"""The GPU as torch sees it, and the bandwidth that everything else is held against."""

from __future__ import annotations

import torch

from benchmarks.gpu_report.results import Findings
from benchmarks.gpu_report.settings import Settings
from benchmarks.gpu_report.timing import bytes_per_second


def measure(settings: Settings, findings: Findings) -> None:
    device = torch.device(settings.device)
    findings.fact("device", settings.device)
    if device.type == "cuda":
        _describe_gpu(device, findings)
    findings.fact("GB/s read by a sum", bytes_per_second(device) / 1e9)


def _describe_gpu(device: torch.device, findings: Findings) -> None:
    seen = torch.cuda.get_device_properties(device)
    free, total = torch.cuda.mem_get_info(device)
    facts = {
        "name": seen.name,
        "compute capability": f"{seen.major}.{seen.minor}",
        "multiprocessors": seen.multi_processor_count,
        "CUDA of torch": torch.version.cuda,
        "GiB in all": total / 2**30,
        "GiB free": free / 2**30,
    }
    for name, value in facts.items():
        findings.fact(name, value)
