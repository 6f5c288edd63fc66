"""The flags of `specdec bench offline`, and the cells that follow from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from deployments.cli.generate.prompts import PromptOptions
from deployments.cli.parsers import comma_list, methods, positive
from deployments.cli.sampling import sampling_section
from deployments.cli.verify.cells import PLAIN, Cell, Grid, Point
from deployments.config.flags import OUTPUT_FILE, flag, section
from deployments.config.loading import LoadOptions, model_argument
from deployments.config.scheduler import SchedulerOptions
from deployments.config.speculation import SpeculationOptions
from deployments.demo.drafts import choose_drafting
from specdec_core.config import DRAFT_MODEL_METHODS, SchedulerConfig, SpecMethod
from specdec_core.errors import InvalidRequestError
from specdec_core.sampling_params import SamplingParams
from specdec_core.speculation.registry import drafting_methods

_CELLS, _REPORT = "Cells", "Report"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOfflineOptions:
    """Flags of the command."""

    model: str = model_argument()
    prompts: PromptOptions = section(PromptOptions)
    grid: Grid = section(
        Grid, ("algorithms", "batch_sizes"), algorithms="autoregressive,exspec", batch_sizes="1,8"
    )
    spec_methods: tuple[str, ...] = flag(
        (),
        f"Methods to compare: {', '.join(drafting_methods())}. Default: draft_model with "
        "--spec-model, otherwise ngram.",
        "--spec-methods",
        "--spec-method",
        parse=methods,
        panel=_CELLS,
    )
    spec_tokens: tuple[int, ...] = flag(
        (),
        "Maximum drafted tokens per sequence and round (K), one cell per value. Default: "
        "the default of `specdec generate`.",
        parse=comma_list(positive),
        metavar="K,...",
        panel=_CELLS,
    )
    repeat: int = flag(
        3,
        "Runs of every cell. The cells take turns. The report has the medians of the runs.",
        min=1,
        panel=_REPORT,
    )
    save_result: Path | None = flag(
        None,
        "File for all cells and runs, as JSON.",
        metavar="FILE.json",
        panel=_REPORT,
        **OUTPUT_FILE,
    )
    plot: Path | None = flag(
        None,
        "File for a plot of the tokens per second of each cell.",
        metavar="FILE.png",
        panel=_REPORT,
        **OUTPUT_FILE,
    )
    limits: SchedulerOptions = section(SchedulerOptions, ("window",))
    sampling: SamplingParams = sampling_section(
        "temperature", "top_p", "top_k", "min_p", "seed", "max_tokens", "ignore_eos"
    )
    speculation: SpeculationOptions = section(
        SpeculationOptions, without=("spec_method", "spec_tokens", "spec_schedule")
    )
    # A run would find prompts that another has computed.
    loading: LoadOptions = section(LoadOptions, enable_prefix_caching=False)

    def __post_init__(self) -> None:
        """Report mistakes before a model is loaded."""
        self.loading.load_config()
        for cell in self.cells:
            self.scheduler_config(cell, 0)
        drafted = [method for method in self.methods if method in DRAFT_MODEL_METHODS]
        if drafted and self.draft is None:
            raise InvalidRequestError(f"--spec-methods {drafted[0]} needs --spec-model")
        if self.speculation.spec_model is not None and not drafted:
            raise InvalidRequestError(f"--spec-methods {self.methods[0]} uses no --spec-model")

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods of the cells. By default, the choice of `specdec generate`."""
        chosen = choose_drafting(self.model, None, self.speculation.spec_model)
        return self.spec_methods or (chosen.method,)

    @property
    def draft(self) -> str | None:
        """The draft model, if there is one. It is loaded only if a cell drafts with it."""
        named = self.speculation.spec_model
        return choose_drafting(self.model, None, named, wants_draft=True).draft

    @property
    def cells(self) -> list[Cell]:
        """All cells, ordered by batch size, plain decoding first."""
        sizes = self.grid.batch_sizes
        plain = [Point(SpecMethod.NONE, 0, size, self.sampling.temperature) for size in sizes]
        cells = [
            Cell(algorithm, point)
            for algorithm in sorted(self.grid.algorithms, key=lambda name: name != PLAIN)
            for point in (plain if algorithm == PLAIN else self._points(algorithm))
        ]
        return sorted(cells, key=lambda cell: sizes.index(cell.point.batch_size))

    def _points(self, algorithm: str) -> list[Point]:
        usual = self.loading.default_draft_tokens(algorithm, self.speculation.spec_policy)
        grid = replace(
            self.grid,
            spec_methods=self.methods,
            spec_tokens=self.spec_tokens or (usual,),
            temperatures=(self.sampling.temperature,),
        )
        return grid.points(algorithm)

    @property
    def uses_draft_model(self) -> bool:
        return any(cell.point.method in DRAFT_MODEL_METHODS for cell in self.cells)

    def scheduler_config(self, cell: Cell, num_requests: int) -> SchedulerConfig:
        method, num_draft_tokens, batch_size, _ = cell.point
        return self.speculation.scheduler_config(
            method,
            num_draft_tokens,
            rows=batch_size,
            window=self.limits.window,
            max_queued=num_requests,
        )
