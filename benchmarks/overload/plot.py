"""The picture of a soak: memory, files and threads of every kind of process, and live sequences."""

from __future__ import annotations

from pathlib import Path

from benchmarks.overload.soak import Soak
from deployments.cli.plotting import picture

_LABELS = {"anon_mib": "MiB (anonymous)", "num_files": "open files", "num_threads": "threads"}


def plot(soak: Soak, path: Path) -> None:
    with picture(path, 11, 7) as figure:
        panels = list(figure.subplots(2, 2).flat)
        minutes = [sample.at_s / 60 for sample in soak.samples]
        for (name, label), axes in zip(_LABELS.items(), panels, strict=False):
            for kind in soak.trends:
                axes.plot(minutes, [getattr(s.held[kind], name) for s in soak.samples], label=kind)
            axes.set(xlabel="minutes", ylabel=label, ylim=(0, None))
        panels[0].legend(fontsize="small")
        panels[3].plot(
            minutes, [sample.num_live for sample in soak.samples], label="live sequences"
        )
        panels[3].plot(minutes, [sample.num_slots for sample in soak.samples], label="slots")
        panels[3].set(xlabel="minutes", ylim=(0, None))
        panels[3].legend(fontsize="small")
