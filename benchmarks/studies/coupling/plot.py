"""The plot of the acceptance: one panel a draft, by temperature.

python -m benchmarks.studies.coupling.plot benchmarks/studies/coupling/acceptance.json out.png
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from deployments.cli.plotting import picture

_LINES = {
    "rejection": ("rejection sampling, 1 - d", "#1b6ca8", "-"),
    "coupled": ("coupled (what specdec does)", "#c8501e", "-"),
    "bound": ("its lower bound, (1 - d) / (1 + d)", "#c8501e", ":"),
    "own_noise": ("draft samples with noise of its own", "#6b6b6b", "--"),
    "no_noise": ("draft takes its most probable token", "#6b6b6b", "-."),
}


def main(
    figures: Annotated[Path, typer.Argument(help="The JSON of the acceptance.")],
    image: Annotated[Path, typer.Argument(help="The PNG file to write.")],
) -> None:
    """Draw the plot again from its figures."""
    plot(json.loads(figures.read_text()), image)


def plot(figures: dict[str, Any], image: Path) -> None:
    names = list(dict.fromkeys(point["draft"] for point in figures["points"]))
    image.parent.mkdir(parents=True, exist_ok=True)
    with picture(image, 3.2 * len(names), 4.6) as canvas:
        panels = canvas.subplots(1, len(names), sharey=True, squeeze=False)
        for panel, name in zip(panels[0], names, strict=True):
            _draw(panel, [point for point in figures["points"] if point["draft"] == name])
            panel.set_title(name, fontsize=11)
            panel.set_xlabel("temperature")
        panels[0][0].set_ylabel("probability that a drafted token is accepted")
        panels[0][0].set_ylim(0, 1.02)
        handles, labels = panels[0][0].get_legend_handles_labels()
        where = "outside lower center"
        canvas.legend(handles, labels, loc=where, ncols=3, frameon=False, fontsize=9.5)
        canvas.suptitle(f"{figures['model']}, drafts made from it", fontsize=12)


def _draw(panel: Any, points: list[dict[str, Any]]) -> None:
    temperatures = [point["temperature"] for point in points]
    for rule, (label, color, style) in _LINES.items():
        values = [point["acceptance"][rule] for point in points]
        panel.plot(temperatures, values, style, color=color, label=label, linewidth=1.6)
    panel.errorbar(
        temperatures,
        [point["measured"] for point in points],
        yerr=[2 * point["measured_error"] for point in points],
        fmt="o",
        color="#c8501e",
        markersize=4,
        capsize=2,
        label="coupled, counted (bars: 2 standard errors)",
    )
    panel.grid(alpha=0.25)
    panel.set_xticks([0.6, 0.8, 1.0, 1.2])


if __name__ == "__main__":
    typer.run(main)
