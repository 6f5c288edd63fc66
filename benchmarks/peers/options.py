"""The flags of `run`, checked before anything is started."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.harness.commands import known
from benchmarks.peers.cells import Axes, Cell, Seat
from benchmarks.peers.engines import ENGINES, EngineSpec
from benchmarks.peers.messages import Load, Turn
from benchmarks.peers.peer_models import PeerModels
from deployments.config.flags import OUTPUT_FILE, REQUIRED, flag, section
from deployments.demo.models import resolve_model
from specdec_core.config import KPolicyName, Numerics
from specdec_core.errors import InvalidRequestError

_PRECISIONS = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}
"""OpenVINO's names of dtypes."""
_ROUND_LEN_TO = 128
_SPARE_TOKENS = 32
"""Room behind the last token for drafted ones that are thrown away."""
_DEFAULT_ENGINES = "specdec,transformers,vllm,openvino,openvino-q4,llama-cpp,paper"


@dataclass(frozen=True, kw_only=True)
class SetupOptions:
    """Engines, and where their environments are."""

    venvs: Path = flag(REQUIRED, "Folder of the environments, models and logs.", resolve_path=True)
    engines: tuple[str, ...] = flag(
        _DEFAULT_ENGINES,
        f"Separated by commas; of {', '.join(ENGINES)}.",
        parse=known("engine", ENGINES),
    )

    @property
    def specs(self) -> list[EngineSpec]:
        return [ENGINES[name] for name in self.engines]


@dataclass(frozen=True, kw_only=True)
class RunOptions(SetupOptions):
    """The flags of the command."""

    input: Path = flag(REQUIRED, "Prompts, as for `specdec generate`.")
    sample: int = flag(16, "Prompts, spread over the categories.")
    axes: Axes = section(Axes)
    paper_checkout: Path | None = flag(
        None, "Folder of the paper's public code.", resolve_path=True
    )
    llama_cpp: Path | None = flag(
        None, "Folder of llama.cpp's sources, built with cmake.", resolve_path=True
    )
    model: str = flag("smollm2-135m", "A demo model; OpenVINO knows no other.")
    max_tokens: int = flag(128, "Every answer has exactly as many.", min=1)
    repeats: int = flag(5, "Rounds over all cells, after a warm-up.", min=1)
    threads: int = flag(2, "Of every engine.", min=1)
    dtype: str = flag("bfloat16", "Of weights and caches.", choices=tuple(_PRECISIONS))
    numerics: Numerics = flag(Numerics.FAST, "Of specdec's target.")
    spec_policy: KPolicyName = flag(KPolicyName.FIXED, "Who says how much of K specdec drafts.")
    top_p: float = flag(1.0, "Of sampled answers.")
    seed: int = flag(0, "Of sampled answers.")
    timeout_s: float = flag(1800.0, "Seconds for one answer of a runner.", "--timeout")
    save_result: Path | None = flag(None, "All figures, as JSON.", **OUTPUT_FILE)
    plot: Path | None = flag(None, "The picture, as PNG.", **OUTPUT_FILE)

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
                "numerics": self.numerics.value,
                "spec_policy": self.spec_policy.value,
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
