"""The flags of `run` as one record, checked before anything is started."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.peers.cells import Axes, Cell, Seat
from benchmarks.peers.engines import ENGINES, EngineSpec
from benchmarks.peers.messages import Load, Turn
from benchmarks.peers.peer_models import PeerModels
from deployments.demo.models import resolve_model
from specdec_core.errors import InvalidRequestError

_PRECISIONS = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}
"""OpenVINO's names of dtypes."""
_ROUND_LEN_TO = 128
_SPARE_TOKENS = 32
"""Room behind the last token for drafted ones that are thrown away."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    engines: tuple[str, ...]
    axes: Axes
    venvs: Path
    paper_checkout: Path | None
    llama_cpp: Path | None
    model: str
    max_tokens: int
    repeats: int
    threads: int
    dtype: str
    numerics: str
    spec_policy: str
    top_p: float
    seed: int
    timeout_s: float
    save_result: Path | None
    plot: Path | None

    def __post_init__(self) -> None:
        unknown = [name for name in self.engines if name not in ENGINES]
        if unknown:
            raise InvalidRequestError(f"no engine {unknown[0]!r}; known are: {', '.join(ENGINES)}")
        for file in (self.save_result, self.plot):
            if file is not None and not file.parent.is_dir():
                raise InvalidRequestError(f"{file}: there is no folder {file.parent}")
        if self.dtype not in _PRECISIONS:
            raise InvalidRequestError(f"--dtype must name one, for all: {', '.join(_PRECISIONS)}")
        if min(self.max_tokens, self.repeats, self.threads, *self.axes.batch_sizes) < 1:
            raise InvalidRequestError("tokens, repeats, threads and batch sizes are at least 1")

    @property
    def specs(self) -> list[EngineSpec]:
        return [ENGINES[name] for name in self.engines]

    @cached_property
    def models(self) -> PeerModels:
        return PeerModels(self.model, self.venvs / "models", self.llama_cpp)

    @property
    def folder(self) -> str:
        return resolve_model(self.model)

    def load(self, seat: Seat, prompts: Sequence[Sequence[int]]) -> Load:
        """What the process of a seat is told first; makes the models that it reads."""
        spec = ENGINES[seat.engine]
        needed = self.axes.drafts if seat.method is None else ([seat.draft] if seat.draft else [])
        return Load(
            target=self.models.target_for(spec),
            drafts={name: self.models.draft_for(spec, name) for name in needed},
            method=seat.method,
            spec_tokens=seat.spec_tokens,
            max_batch_size=max(self.axes.batch_sizes),
            max_model_len=self._max_model_len(prompts),
            dtype=self.dtype,
            threads=self.threads,
            unused_id=unused_id(Path(self.folder), prompts),
            options={
                "precision": _PRECISIONS[self.dtype],
                **spec.options,
                "weights": spec.weights.value,
                "checkout": str(self.paper_checkout),
                "llama_cpp": str(self.llama_cpp),
                "numerics": self.numerics,
                "spec_policy": self.spec_policy,
            },
        )

    def _max_model_len(self, prompts: Sequence[Sequence[int]]) -> int:
        needed = max(len(prompt) for prompt in prompts) + self.max_tokens + _SPARE_TOKENS
        return -(-needed // _ROUND_LEN_TO) * _ROUND_LEN_TO

    def turn(self, cell: Cell, prompts: Sequence[Sequence[int]]) -> Turn:
        return Turn(
            method=cell.method,
            draft=cell.draft,
            spec_tokens=cell.spec_tokens,
            batch_size=cell.batch_size,
            prompts=[list(prompt) for prompt in prompts],
            max_tokens=self.max_tokens,
            temperature=self.axes.temperature,
            top_p=self.top_p,
            seed=self.seed,
        )


def unused_id(folder: Path, prompts: Sequence[Sequence[int]]) -> int:
    """A special id that is in no prompt. Raises InvalidRequestError where there is none."""
    added = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    used = {token for prompt in prompts for token in prompt}
    free: list[int] = [
        token["id"] for token in added if token["special"] and token["id"] not in used
    ]
    if not free:
        raise InvalidRequestError(f"every special token of {folder} is in some prompt")
    return max(free)
