"""The flags of `specdec verify` as one record, and the configurations from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deployments.cli.verify.cells import Cells, Grid, Point
from deployments.cli.verify.draft import num_left_out
from specdec_core.config import (
    WINDOW_PER_ROW,
    KPolicyName,
    NgramConfig,
    Numerics,
    PoolConfig,
    SpeculationConfig,
    uses_draft_model,
)
from specdec_core.errors import InvalidRequestError
from specdec_core.loading.loader import DType, LoadConfig
from specdec_core.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """The command's flags; flags.py says what each means."""

    model: str
    input: Path
    json: Path | None
    algorithms: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    spec_tokens: tuple[int, ...]
    spec_methods: tuple[str, ...]
    temperatures: tuple[float, ...]
    cells: Cells
    cell_seed: int
    grid_sample: int
    compare_fast: bool
    spec_model: str
    draft_revision: str | None
    prompt_lookup_max: int | None
    prompt_lookup_min: int | None
    window: int | None
    limit: int | None
    sample: int | None
    raw_prompt: bool
    chat_template: Path | None
    max_tokens: int
    top_p: float
    top_k: int
    min_p: float
    seed: int
    ignore_eos: bool
    logprobs: int | None
    dtype: str
    device: str
    numerics: str
    revision: str | None
    max_model_len: int | None
    kv_cache_tokens: int | None

    def __post_init__(self) -> None:
        """Report mistakes before a model is loaded."""
        for temperature in self.temperatures:
            self.sampling_params(temperature)
        for point in self.points:
            self.pool_config(point, 0)
        if not self.points:
            raise InvalidRequestError(
                "plain decoding at batch size 1 is the reference itself: add --batch-sizes or "
                "--algorithms"
            )
        self.load_config(0)
        num_left_out(self.spec_model)
        if self.limit is not None and self.sample is not None:
            raise InvalidRequestError("--limit and --sample exclude each other")
        if self.json is not None and not self.json.parent.is_dir():
            raise InvalidRequestError(f"{self.json}: there is no folder {self.json.parent}")

    @property
    def grid(self) -> Grid:
        return Grid(
            algorithms=self.algorithms,
            methods=self.spec_methods,
            spec_tokens=self.spec_tokens,
            batch_sizes=self.batch_sizes,
            temperatures=self.temperatures,
        )

    @property
    def points(self) -> list[Point]:
        return [point for algorithm in self.algorithms for point in self.grid.points(algorithm)]

    @property
    def uses_draft_model(self) -> bool:
        return any(uses_draft_model(point.method) for point in self.points)

    def sampling_params(self, temperature: float) -> SamplingParams:
        names = ("top_p", "top_k", "min_p", "seed", "max_tokens", "ignore_eos")
        return SamplingParams(
            temperature=temperature,
            num_logprobs=self.logprobs,
            **{name: getattr(self, name) for name in names},
        )

    def window_of(self, point: Point) -> int:
        return self.window or WINDOW_PER_ROW * point.batch_size

    def pool_config(self, point: Point, num_requests: int) -> PoolConfig:
        k_policy = KPolicyName.FIXED  # an audit must draft, even if that does not pay
        lookup = self.prompt_lookup_max, self.prompt_lookup_min
        try:
            return PoolConfig(
                max_group_size=point.batch_size,
                window=self.window_of(point),
                max_queued=num_requests,
                speculation=SpeculationConfig(
                    method=point.method,
                    num_draft_tokens=point.num_draft_tokens,
                    k_policy=k_policy,
                    ngram=NgramConfig.suiting(k_policy, *lookup),
                ),
            )
        except ValueError as error:
            raise InvalidRequestError(str(error)) from error

    def load_config(self, kv_cache_tokens: int) -> LoadConfig:
        """Return the configuration. `kv_cache_tokens` is the need of the cells; the flag overrides
        it."""
        return LoadConfig(
            dtype=DType(self.dtype),
            device=self.device,
            revision=self.revision,
            max_model_len=self.max_model_len,
            kv_cache_tokens=self.kv_cache_tokens or kv_cache_tokens or None,
            numerics=Numerics(self.numerics),
        )
