"""A step that does what the settings' `model` names: what a runner has to survive."""

from __future__ import annotations

import os
import signal
import subprocess
import time

from benchmarks.gpu_report.results import Findings, StepSkippedError
from benchmarks.gpu_report.settings import Settings


def measure(settings: Settings, findings: Findings) -> None:
    step = findings.result.step
    with (settings.output / "ran").open("a") as file:
        file.write(f"{step}\n")
    findings.fact("pid", os.getpid())
    findings.row("rows", number=1)
    print(f"{step} is about to act", flush=True)
    if step == "dies":
        os.kill(os.getpid(), signal.SIGSEGV)
    if step == "raises":
        raise ValueError("CUDA error: an illegal memory access")
    if step == "skips":
        raise StepSkippedError("pytest is not installed")
    if step == "hangs" and not (settings.output / "healed").exists():
        child = subprocess.Popen(["sleep", "600"])
        findings.fact("child", child.pid)
        time.sleep(600)
    findings.row("rows", number=2)
