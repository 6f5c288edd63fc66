"""The flags of `specdec bench offline` as one record, and the cells that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deployments.cli.verify.cells import PLAIN, Cell, Grid, Point
from deployments.config.loading import LoadOptions
from deployments.demo.drafts import choose_drafting
from specdec_core.config import (
    WINDOW_PER_ROW,
    KPolicyName,
    NgramConfig,
    OverlapMode,
    PoolConfig,
    SpecMethod,
    SpeculationConfig,
    uses_draft_model,
)
from specdec_core.errors import InvalidRequestError
from specdec_core.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOfflineOptions(LoadOptions):
    """The command's flags; command.py names the place where each is explained."""

    model: str
    input: Path
    algorithms: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    spec_methods: tuple[str, ...]
    """Methods of the cells. If empty, the choice of `specdec generate`."""
    spec_tokens: tuple[int, ...]
    """Maximum K of the cells. If empty, the choice of `specdec generate`."""
    repeat: int
    save_result: Path | None
    plot: Path | None
    window: int | None
    limit: int | None
    sample: int | None
    raw_prompt: bool
    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int
    ignore_eos: bool
    spec_model: str | None
    spec_policy: KPolicyName
    spec_min_confidence: float
    overlap: OverlapMode
    prompt_lookup_max: int | None
    prompt_lookup_min: int | None

    def __post_init__(self) -> None:
        """Report mistakes before a model is loaded."""
        self.sampling_params()
        self.load_config()
        for cell in self.cells:
            self.pool_config(cell, 0)
        if self.limit is not None and self.sample is not None:
            raise InvalidRequestError("--limit and --sample exclude each other")
        drafted = [method for method in self.methods if uses_draft_model(method)]
        if drafted and self.draft is None:
            raise InvalidRequestError(f"--spec-methods {drafted[0]} needs --spec-model")
        if self.spec_model is not None and not drafted:
            raise InvalidRequestError(f"--spec-methods {self.methods[0]} uses no --spec-model")
        for file in (self.save_result, self.plot):
            if file is not None and not file.parent.is_dir():
                raise InvalidRequestError(f"{file}: there is no folder {file.parent}")

    @property
    def methods(self) -> tuple[str, ...]:
        chosen = choose_drafting(self.model, None, self.spec_model)
        return self.spec_methods or (chosen.method,)

    @property
    def draft(self) -> str | None:
        """The draft model, if there is one. It is loaded only if a cell drafts with it."""
        return choose_drafting(self.model, None, self.spec_model, wants_draft=True).draft

    @property
    def cells(self) -> list[Cell]:
        """All cells, ordered by batch size, plain decoding first."""
        plain = [Point(SpecMethod.NONE, 0, size, self.temperature) for size in self.batch_sizes]
        cells = [
            Cell(algorithm, point)
            for algorithm in sorted(self.algorithms, key=lambda name: name != PLAIN)
            for point in (plain if algorithm == PLAIN else self._grid(algorithm).points(algorithm))
        ]
        return sorted(cells, key=lambda cell: self.batch_sizes.index(cell.point.batch_size))

    def _grid(self, algorithm: str) -> Grid:
        usual = self.default_draft_tokens(algorithm, self.spec_policy)
        return Grid(
            algorithms=(algorithm,),
            methods=self.methods,
            spec_tokens=self.spec_tokens or (usual,),
            batch_sizes=self.batch_sizes,
            temperatures=(self.temperature,),
        )

    @property
    def uses_draft_model(self) -> bool:
        return any(uses_draft_model(cell.point.method) for cell in self.cells)

    def sampling_params(self) -> SamplingParams:
        names = ("temperature", "top_p", "top_k", "min_p", "seed", "max_tokens", "ignore_eos")
        return SamplingParams(**{name: getattr(self, name) for name in names})

    def pool_config(self, cell: Cell, num_requests: int) -> PoolConfig:
        method, num_draft_tokens, batch_size, _ = cell.point
        try:
            return PoolConfig(
                max_group_size=batch_size,
                window=self.window or WINDOW_PER_ROW * batch_size,
                max_queued=num_requests,
                overlap=self.overlap,
                speculation=SpeculationConfig(
                    method=method,
                    num_draft_tokens=num_draft_tokens,
                    k_policy=self.spec_policy,
                    min_confidence=self.spec_min_confidence,
                    ngram=NgramConfig.suiting(
                        self.spec_policy, self.prompt_lookup_max, self.prompt_lookup_min
                    ),
                ),
            )
        except ValueError as error:
            raise InvalidRequestError(str(error)) from error
