"""The flags of `specdec bench serve` as one record, and the load that follows from them."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from deployments.cli.bench.figures import Wanted
from deployments.cli.bench.load import Load
from deployments.cli.bench.names import GRPC_ADDRESS, HTTP_URL, Backend, DatasetName, Vocabulary
from deployments.cli.bench.prompts import (
    COPYING_FILE,
    Prompt,
    PromptForm,
    file_prompts,
    random_prompts,
)
from deployments.simulation.arrivals import arrivals
from specdec_core.errors import InvalidRequestError

_RANDOM_PROMPTS = 100
_WITHOUT_FILE = (DatasetName.RANDOM, DatasetName.COPYING)
_FORMS = {
    Backend.OPENAI: PromptForm.COMPLETION,
    Backend.OPENAI_CHAT: PromptForm.CHAT,
    Backend.GRPC: PromptForm.ANY,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchServeOptions:
    """The command's flags; flags.py says what each means."""

    backend: Backend
    base_url: str | None
    grpc_address: str | None
    model: str | None
    api_key: str | None
    dataset_name: DatasetName | None
    dataset_path: Path | None
    num_prompts: int | None
    random_input_len: int
    random_vocab: Vocabulary
    raw_prompt: bool
    max_tokens: int
    temperature: float
    top_p: float | None
    ignore_eos: bool
    extra_body: dict[str, Any]
    seed: int
    request_rate: float
    burstiness: float
    max_concurrency: int | None
    num_warmups: int
    repeat: int
    request_timeout: float
    percentile_metrics: tuple[str, ...]
    metric_percentiles: tuple[float, ...]
    goodput: dict[str, float]
    save_result: Path | None
    save_detailed: bool
    plot: Path | None

    def __post_init__(self) -> None:
        """Report mistakes before anything is sent."""
        for name in ("request_rate", "burstiness", "request_timeout"):
            if not getattr(self, name) > 0:
                raise InvalidRequestError(
                    f"--{name.replace('_', '-')} must be above 0, got {getattr(self, name):g}"
                )
        if math.isinf(self.request_timeout):
            raise InvalidRequestError("--request-timeout must be finite: a run must end")
        if self.dataset in _WITHOUT_FILE and self.dataset_path is not None:
            raise InvalidRequestError(f"--dataset-name {self.dataset} takes no --dataset-path")
        if self.dataset is DatasetName.COPYING and self.backend is Backend.OPENAI:
            raise InvalidRequestError(
                "--dataset-name copying has chats: use --backend openai-chat or --backend grpc"
            )
        if self.dataset not in _WITHOUT_FILE and self.dataset_path is None:
            raise InvalidRequestError(f"--dataset-name {self.dataset} needs --dataset-path")
        if self.raw_prompt and self.backend is Backend.OPENAI_CHAT:
            raise InvalidRequestError("--raw-prompt is not for a chat: use --backend openai")
        if self.grpc_address is not None and self.backend is not Backend.GRPC:
            raise InvalidRequestError("--grpc-address is for --backend grpc")
        if self.save_detailed and self.save_result is None:
            raise InvalidRequestError("--save-detailed needs --save-result")
        for file in (self.save_result, self.plot):
            if file is not None and not file.parent.is_dir():
                raise InvalidRequestError(f"{file}: there is no folder {file.parent}")

    @property
    def dataset(self) -> DatasetName:
        """The data set. A file without a name is taken as it is. Without a file the prompts are
        random."""
        inferred = DatasetName.RANDOM if self.dataset_path is None else DatasetName.CUSTOM
        return self.dataset_name or inferred

    @property
    def url(self) -> str:
        return self.base_url or HTTP_URL

    @property
    def address(self) -> str:
        """Address of the gRPC service as host:port."""
        if self.grpc_address is not None or self.base_url is None:
            return self.grpc_address or GRPC_ADDRESS
        return urlsplit(self.base_url).netloc or self.base_url

    @property
    def wanted(self) -> Wanted:
        return Wanted(
            metrics=self.percentile_metrics,
            percentiles=self.metric_percentiles,
            goals=self.goodput,
        )

    def load(self) -> Load:
        """Return the load. Raises InvalidRequestError for a file that the backend cannot carry."""
        prompts = self._prompts()
        return Load(
            prompts=prompts,
            arrivals_s=arrivals(
                len(prompts), rate=self.request_rate, burstiness=self.burstiness, seed=self.seed
            ),
            max_concurrency=self.max_concurrency,
            timeout_s=self.request_timeout,
            is_salted=self.dataset is DatasetName.COPYING,
        )

    def _prompts(self) -> list[Prompt]:
        form, sampling = _FORMS[self.backend], self._sampling()
        if self.dataset is DatasetName.RANDOM:
            return random_prompts(
                self.num_prompts or _RANDOM_PROMPTS,
                self.random_input_len,
                self.random_vocab,
                form,
                sampling,
                seed=self.seed,
            )
        return file_prompts(
            self.dataset,
            self.dataset_path or COPYING_FILE,
            self.num_prompts,
            form,
            sampling,
            is_raw=self.raw_prompt,
        )

    def _sampling(self) -> dict[str, Any]:
        """Return the sent sampling parameters. Except the temperature, only those that differ from
        every server's default are sent."""
        sampling: dict[str, Any] = {"max_tokens": self.max_tokens, "temperature": self.temperature}
        if self.top_p is not None:
            sampling["top_p"] = self.top_p
        if self.ignore_eos or self.dataset is DatasetName.RANDOM:
            sampling["ignore_eos"] = True
        return sampling

    def settings(self) -> dict[str, Any]:
        """Return all flags except the key, for a JSON file. Infinity is written as "inf"."""
        named = {name: value for name, value in asdict(self).items() if name != "api_key"}
        return {name: "inf" if value == math.inf else value for name, value in named.items()}
