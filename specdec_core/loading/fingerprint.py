"""Fingerprint of a replica's numerics. Replicas with equal fingerprints continue each other's
sequences bit for bit."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
from importlib.metadata import PackageNotFoundError, version

import torch
import transformers

from specdec_core.layers.attention.paged import BlockAttention
from specdec_core.layers.elementwise import LayerOps
from specdec_core.worker.model_runner import ModelRunner

_FLASH_PACKAGES = ("flash-attn", "flash-attn-3")
"""Packages of flash attention that have their own version. PyTorch's own copy has PyTorch's
version."""
_UNKNOWN = "unknown"


def numerics_fingerprint(model: ModelRunner, digest: str) -> str:
    """Return readable facts, then one hash of everything that may change a bit.

    `digest` is the digest of the model's files. The number of threads counts, because kernels
    divide their sums by it.
    """
    dtype = str(model.dtype).removeprefix("torch.")
    facts = [
        digest,
        dtype,
        type(model.module).__name__,
        str(model.numerics),
        str(model.class_table),
        torch.__version__,
        torch.__config__.show(),
        transformers.__version__,
        _device_name(model.device),
        model.kernels.identity if model.kernels is not None else "no kernels",
        f"recorded: {model.drafts_in_one_go}, attention: {_compiled(model.block_attention)}",
        f"between linears: {_compiled(getattr(model.module, 'ops', None))}",
        str(torch.get_num_threads()),
    ]
    hashed = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]
    return f"{model.device.type} {dtype} {model.numerics} torch {torch.__version__} {hashed}"


def _compiled(kernels: BlockAttention | LayerOps | None) -> str:
    """Return the kernels' name, and the version of their compiler if they have one."""
    return f"{type(kernels).__name__} {getattr(kernels, 'compiler_version', '')}"


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)} {torch.version.cuda} {_gpu_libraries()}"
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


def _gpu_libraries() -> str:
    """Return the GPU libraries with their versions, which PyTorch's version does not determine."""
    flash = [f"{name} {_package_version(name)}" for name in _FLASH_PACKAGES]
    preferred = torch.backends.cuda.preferred_blas_library()
    return ", ".join([f"cuBLAS {_cublas_version()} {preferred}", *flash])


def _cublas_version() -> str:
    """Return the version of the loaded cuBLAS. Another patch version may sum in another order."""
    major = str(torch.version.cuda).partition(".")[0]
    try:
        library = ctypes.CDLL(f"libcublasLt.so.{major}", mode=os.RTLD_NOLOAD)
        get_version = library.cublasLtGetVersion
    except (OSError, AttributeError):
        return _UNKNOWN
    get_version.restype = ctypes.c_size_t
    return str(get_version())


def _package_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return _UNKNOWN
