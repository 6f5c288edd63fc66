"""What every test shares: threads, the order of the suites, and where data and models lie."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Before torch is imported anywhere: the tests' tiny models are slower with more threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes says nothing on a machine that is shared.
settings.register_profile("shared-machine", deadline=None)
settings.load_profile("shared-machine")

_ROOT = Path(__file__).parent.parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fast tests first, the service last; tests that need a GPU only where there is one."""
    items.sort(
        key=lambda item: ("service" in item.path.parts, bool(item.get_closest_marker("slow")))
    )
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if gpu_items and not _has_gpu():
        for item in gpu_items:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(autouse=True)
def threads_as_they_were() -> Iterator[None]:
    """What a test loads may set the threads of its process: those after it would spin beside the
    other processes of the run."""
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch is not None else 1
    yield
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != before:
        torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def choice_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that an earlier test has loaded lets its process choose with kernels of ours, past
    whatever this test does to PyTorch's choice."""
    module = sys.modules.get("specdec_core.native_choice")
    if module is not None:
        monkeypatch.setattr(module, "_kernels", None)


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def shared_file(name: str) -> Path:
    """A data file that is not part of the repository; skips the test where it is absent."""
    folders = [Path(os.environ["SPECDEC_SHARED"])] if "SPECDEC_SHARED" in os.environ else []
    folders.append(_ROOT.parent / "shared")
    for folder in folders:
        for path in (folder / "data" / name, folder / name):
            if path.is_file():
                return path
    pytest.skip(f"{name} is neither in $SPECDEC_SHARED nor in ../shared")


@pytest.fixture(scope="session")
def spec_bench() -> Path:
    return shared_file("spec_bench_240.jsonl")


@pytest.fixture(scope="session")
def rayservice_crd() -> Path:
    return shared_file("ray.io_rayservices.yaml")


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """The folder of the demo model, pulled by `make setup`."""
    from deployments.demo_models import is_pulled, model_folder

    if not is_pulled("smollm2-135m"):
        pytest.skip("the demo model is not here: run `specdec models pull smollm2-135m`")
    return model_folder("smollm2-135m")
