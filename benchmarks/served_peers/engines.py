"""The catalogue of servers: command line, variables, when it is ready, what a request adds."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.harness.starting import SERVE
from benchmarks.peers.engines import ENGINES as OFFLINE_ENGINES
from benchmarks.peers.engines import environment, python_of
from benchmarks.peers.llama_cpp import LlamaCpp
from deployments.config.flags import REQUIRED, flag
from deployments.demo.models import resolve_model
from specdec_core.errors import InvalidRequestError

SPECDEC, ENGINE = "specdec", "engine"
"""The service as it ships, and the engine that it runs, plain and without any service."""
VLLM, LLAMA = "vllm", "llama-bf16"
"""The peers with the same weights that goals are about; what starts with these is the same peer."""
_HOST = "127.0.0.1"
_NGRAM = {"prompt_lookup_max": 4, "prompt_lookup_min": 2, "num_speculative_tokens": 4}


@dataclass(frozen=True, kw_only=True)
class Site:
    """What command lines depend on."""

    model: str = flag("smollm2-135m", "Name of a demo model, or a folder.")
    venvs: Path = flag(REQUIRED, "Folder of environments, GGUF files and logs.", resolve_path=True)
    llama_cpp: Path | None = flag(
        None,
        "Folder of llama.cpp's sources; its programs in build/bin, by cmake.",
        resolve_path=True,
    )
    port: int = flag(18400, "HTTP; specdec's gRPC takes the next.")
    threads: int = flag(
        os.cpu_count() or 1, "Of the peers and the plain engine.", show_default="all cores"
    )
    max_streams: int = 1
    max_model_len: int = 2048

    @cached_property
    def folder(self) -> str:
        return resolve_model(self.model)

    @property
    def models(self) -> Path:
        return self.venvs / "models"

    @property
    def url(self) -> str:
        return f"http://{_HOST}:{self.port}"

    @property
    def llama(self) -> LlamaCpp:
        """Raises InvalidRequestError where no folder was named."""
        if self.llama_cpp is None:
            raise InvalidRequestError("needs --llama-cpp: a folder of llama.cpp with its build")
        return LlamaCpp(self.llama_cpp)


Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One engine as a server."""

    name: str
    command: Callable[[Site], list[str]]
    """Raises InvalidRequestError for what is not there."""
    variables: Callable[[Site], dict[str, str]]
    ready_path: str
    unshared: Callable[[str], Fields]
    """Fields that keep a request, of a name that no other has, from finding an earlier prompt's
    cache: rounds repeat their prompts."""


def _salted(name: str) -> Fields:
    return {"cache_salt": name}


def _uncached(name: str) -> Fields:
    return {"cache_prompt": False}


def specdec_command(site: Site) -> list[str]:
    """As it ships: nothing but the model and ports."""
    ports = ["--port", str(site.port), "--grpc-port", str(site.port + 1)]
    return [*SERVE, site.model, *ports]


def with_spec_tokens(server: Server, spec_tokens: int) -> Server:
    """Return a specdec server with another maximum K."""

    def command(site: Site) -> list[str]:
        return [*server.command(site), "--spec-tokens", str(spec_tokens)]

    return replace(server, name=f"{server.name}-k{spec_tokens}", command=command)


def _vllm_command(*more: str, dtype: str) -> Callable[[Site], list[str]]:
    def command(site: Site) -> list[str]:
        python = python_of(OFFLINE_ENGINES["vllm"], site.venvs)
        if python is None:
            raise InvalidRequestError(
                f"no environment in {site.venvs / 'vllm'}: run `python -m benchmarks.served_peers "
                f"setup --venvs {site.venvs}`"
            )
        limits = ["--max-model-len", str(site.max_model_len)]
        limits += ["--max-num-seqs", str(site.max_streams)]
        where = ["--host", _HOST, "--port", str(site.port), "--dtype", dtype]
        return [str(python.with_name("vllm")), "serve", site.folder, *where, *limits, *more]

    return command


def _vllm_variables(site: Site) -> dict[str, str]:
    """As its guide for CPUs says: cores by number, its OpenMP library and tcmalloc preloaded."""
    return environment(OFFLINE_ENGINES["vllm-preload"], site.venvs, site.threads) | {
        "VLLM_CPU_KVCACHE_SPACE": "2"
    }


def _llama_command(*more: str, is_q4: bool = False) -> Callable[[Site], list[str]]:
    def command(site: Site) -> list[str]:
        make = site.llama.q4 if is_q4 else site.llama.bfloat16
        file = make(Path(site.folder), site.models)
        slots = ["-np", str(site.max_streams), "-c", str(site.max_streams * site.max_model_len)]
        where = ["--host", _HOST, "--port", str(site.port), "-t", str(site.threads)]
        return [str(site.llama.server), "-m", str(file), *where, *slots, "--no-webui", *more]

    return command


def _vllm(name: str, *more: str, dtype: str = "bfloat16") -> Server:
    return Server(
        name=name,
        command=_vllm_command(*more, dtype=dtype),
        variables=_vllm_variables,
        ready_path="/health",
        unshared=_salted,
    )


def _llama(name: str, *more: str, is_q4: bool = False) -> Server:
    return Server(
        name=name,
        command=_llama_command(*more, is_q4=is_q4),
        variables=lambda site: {},
        ready_path="/health",
        unshared=_uncached,
    )


_SIMPLE = ("--spec-type", "ngram-simple")
_MOD = ("--spec-default",)

SERVERS = {
    server.name: server
    for server in (
        Server(
            name=SPECDEC,
            command=specdec_command,
            variables=lambda site: {},
            ready_path="/ready",
            unshared=_salted,
        ),
        _vllm(VLLM),
        _vllm(f"{VLLM}-ngram", "--speculative-config", json.dumps({"method": "ngram", **_NGRAM})),
        _vllm(f"{VLLM}-f32", dtype="float32"),
        _llama(LLAMA),
        _llama(f"{LLAMA}-ngram", *_SIMPLE),
        _llama(f"{LLAMA}-ngram-mod", *_MOD),
        _llama("llama-q4", is_q4=True),
        _llama("llama-q4-ngram", *_SIMPLE, is_q4=True),
    )
}
NAMES = (SPECDEC, ENGINE, *[name for name in SERVERS if name != SPECDEC])


def inherited() -> dict[str, str]:
    """Return this process's variables without its number of threads; servers choose theirs."""
    return {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
