"""The flags of `specdec bench serve`, named as in vLLM."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deployments.cli.bench.names import Backend, DatasetName
from deployments.config.flags import INPUT_FILE, OUTPUT_FILE, flag
from specdec_core.errors import InvalidRequestError

_SERVER, _PROMPTS, _SAMPLING, _TRAFFIC = "Server", "Prompts", "Sampling", "Traffic"


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"this is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"a JSON object is needed, got {text}")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchServeOptions:
    """Flags of the command."""

    backend: Backend = flag(
        Backend.OPENAI, "openai: /v1/completions; openai-chat: /v1/chat/completions.", panel=_SERVER
    )
    base_url: str = flag(
        "http://127.0.0.1:8000", "Address of the server.", metavar="URL", panel=_SERVER
    )
    model: str | None = flag(
        None, "Model in the requests. Default: the server's first.", metavar="NAME", panel=_SERVER
    )
    api_key: str | None = flag(
        None,
        "API key, sent as a bearer token.",
        metavar="KEY",
        envvar="OPENAI_API_KEY",
        panel=_SERVER,
    )
    extra_body: dict[str, Any] = flag(
        "{}",
        'Extra fields of every request, as JSON, e.g. {"speculative": {"enabled": false}}.',
        parse=_json_object,
        metavar="JSON",
        panel=_SERVER,
    )
    dataset_name: DatasetName | None = flag(
        None,
        "Source of the prompts. `spec_bench` takes lines of --dataset-path evenly from its "
        "categories. `custom` takes its first lines. `copying` is a set of chats with text to copy "
        "that ships with specdec. `random` draws common words. [default: custom with "
        "--dataset-path, else random]",
        show_default=False,
        panel=_PROMPTS,
    )
    dataset_path: Path | None = flag(
        None, "File of prompts, in the format of `specdec generate`.", panel=_PROMPTS, **INPUT_FILE
    )
    num_prompts: int | None = flag(
        None,
        "Number of requests. Default: all lines of the data set, or 100 random prompts.",
        min=1,
        panel=_PROMPTS,
    )
    random_input_len: int = flag(
        1024,
        "Number of words of a random prompt.",
        "--random-input-len",
        "--input-len",
        min=1,
        panel=_PROMPTS,
    )
    max_tokens: int = flag(
        128,
        "Maximum tokens of an answer, unless the line of the file sets it.",
        "--max-tokens",
        "--random-output-len",
        "--output-len",
        min=1,
        panel=_SAMPLING,
    )
    temperature: float = flag(0.0, "Sampling temperature. 0 is greedy.", panel=_SAMPLING)
    ignore_eos: bool = flag(
        False, "Continue after the model's end token. Random prompts always do.", panel=_SAMPLING
    )
    request_rate: float = flag(
        math.inf, "Requests per second. inf sends all at once.", panel=_TRAFFIC
    )
    max_concurrency: int | None = flag(
        None, "Maximum requests in flight. Default: no limit.", min=1, panel=_TRAFFIC
    )
    num_warmups: int = flag(
        0, "Number of warm-up requests, which are not measured.", min=0, panel=_TRAFFIC
    )
    repeat: int = flag(
        1, "Number of runs. The report has each, and their medians.", min=1, panel=_TRAFFIC
    )
    seed: int = flag(0, "Seed of random prompts and of arrivals. It is not sent.", panel=_TRAFFIC)
    save_result: Path | None = flag(
        None,
        "File for all figures as JSON, under vLLM's names.",
        metavar="FILE.json",
        panel="Report",
        **OUTPUT_FILE,
    )

    def __post_init__(self) -> None:
        """Report mistakes before anything is sent."""
        if not self.request_rate > 0:
            raise InvalidRequestError(f"--request-rate must be above 0, got {self.request_rate:g}")
        has_own_prompts = self.dataset in (DatasetName.RANDOM, DatasetName.COPYING)
        if has_own_prompts and self.dataset_path is not None:
            raise InvalidRequestError(f"--dataset-name {self.dataset} takes no --dataset-path")
        if not has_own_prompts and self.dataset_path is None:
            raise InvalidRequestError(f"--dataset-name {self.dataset} needs --dataset-path")
        if self.dataset is DatasetName.COPYING and not self.is_chat:
            raise InvalidRequestError("--dataset-name copying has chats: use --backend openai-chat")

    @property
    def is_chat(self) -> bool:
        return self.backend is Backend.OPENAI_CHAT

    @property
    def dataset(self) -> DatasetName:
        """The data set. A file without a name is taken as it is. Without a file the prompts are
        random."""
        inferred = DatasetName.RANDOM if self.dataset_path is None else DatasetName.CUSTOM
        return self.dataset_name or inferred
