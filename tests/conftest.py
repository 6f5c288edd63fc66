"""What every test shares: threads, the order of the suites, and where data and models lie."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import gc
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests.covering import covering

if TYPE_CHECKING:
    from tests.demo_service import DemoService

# Before torch is imported anywhere: the tests' tiny models are slower with more threads, and what
# exact numerics find out of a machine may depend on their number.
os.environ["OMP_NUM_THREADS"] = "1"
# Before Ray is: it looks only once. As `specdec serve` says it.
os.environ.setdefault("RAY_raylet_start_wait_time_s", "180")
# Before gRPC is: what Ray starts beside a server of ours would die between fork and exec
# (grpc/grpc issue 43055): one in forty, one in eight of a busy machine, three in four of those that
# are read from a disk for the first time.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# Before Triton is imported, as torch and transformers do: without a GPU its interpreter runs our
# kernel.
if not any(Path("/dev").glob("nvidia*")):
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Until all is imported: it is looked through again and again, for a quarter of that time.
gc.disable()

# How long an example takes says nothing on a machine that is shared.
settings.register_profile("shared-machine", deadline=None)
settings.load_profile("shared-machine")

_ROOT = Path(__file__).parent.parent
_SERVICE = "service"
"""The folder, the fixture of the service that is started once, and all who ask for it: a group."""
_DEMO = "demo"
"""The fixture of the demo service and all who ask for it."""
_SAMPLES = "samples"
"""What was decoded for one test of a law is there for the others."""
_LONGEST_FIRST = (
    _SERVICE,
    # Beside the start of the service. A worker that has so short a file has the next one as well:
    # cells, and chaos, which so is the second that starts a Ray.
    "test_campaign.py",
    "test_demo_models.py",
    "test_cells.py",
    "test_chaos.py",
    "test_leaving.py",
    "test_autoscaling.py",
    "test_base_text.py",  # waits for nobody else's start
    _DEMO,
    "test_grpc_fuzz.py",
    "test_generate.py",
    "test_train_draft.py",
    _SAMPLES,
    "test_verify.py",
    "test_supply_chain.py",
)
"""Workers take groups in this order: who gets a long one last keeps the others waiting."""
_COROUTINE_S = 60.0
"""Seconds that a test which is a coroutine may take."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--first-cases", action="store_true", help="Of each test its first case alone."
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The slow half need not import files in which nothing is slow."""
    chosen = config.getoption("markexpr").split()
    if chosen[:1] != ["slow"] or not collection_path.match("test_*.py"):
        return None
    return True if "mark.slow" not in collection_path.read_text() else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Fast tests first, of both kinds the longest; those for a GPU only where there is one."""
    _leave_to_nightly(items)
    if config.getoption("first_cases"):
        _keep_first_cases(config, items)
    groups = {path: _group(path) for path in {item.path for item in items}}
    items.sort(key=lambda item: (bool(item.get_closest_marker("slow")), _rank(groups[item.path])))
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if gpu_items and not _has_gpu():
        for item in gpu_items:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def _leave_to_nightly(items: list[pytest.Item]) -> None:
    """The cases of a test marked `covering` that bring no new values together."""
    cases: dict[str, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("covering"):
            cases.setdefault(_test_of(item), []).append(item)
    for of_one in cases.values():
        marker = of_one[0].get_closest_marker("covering")
        assert marker is not None
        kept = set(covering([item.callspec.params for item in of_one], *marker.args))
        for index, item in enumerate(of_one):
            if index not in kept:
                item.add_marker("nightly")


def _keep_first_cases(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of each test the first case that is not nightly."""
    firsts: dict[str, pytest.Item] = {}
    for item in items:
        if not item.get_closest_marker("nightly"):
            firsts.setdefault(_test_of(item), item)
    others = [item for item in items if firsts.get(_test_of(item)) is not item]
    items[:] = firsts.values()
    config.hook.pytest_deselected(items=others)


def _test_of(item: pytest.Item) -> str:
    """Without its case."""
    return item.nodeid.partition("[")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`--dist loadfile`, where files that share the service are as one."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _group(config.rootpath / nodeid.partition("::")[0])

    return Scheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters

    async def run() -> None:
        async with asyncio.timeout(_COROUTINE_S):
            await pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})

    asyncio.run(run())
    return True


@functools.cache
def _group(path: Path) -> str:
    text = path.read_text()
    if path.parent.name == _SERVICE and "service: Service" in text:
        return _SERVICE
    if "tests.distribution.samples" in text:
        return _SAMPLES
    return _DEMO if "demo: DemoService" in text else str(path)


def pytest_collection_finish() -> None:
    """What is imported by now lives as long as the process: no look for garbage takes it in."""
    gc.collect()
    gc.freeze()
    gc.enable()


def _rank(group: str) -> int:
    name = Path(group).name
    return _LONGEST_FIRST.index(name) if name in _LONGEST_FIRST else len(_LONGEST_FIRST)


StartedAlone = Callable[[AbstractContextManager[Any]], AbstractContextManager[Any]]


@pytest.fixture(scope="session")
def started_alone(tmp_path_factory: pytest.TempPathFactory) -> StartedAlone:
    """Enters what starts a Ray while no other worker of the run starts one."""
    lock = tmp_path_factory.getbasetemp().parent / "a-ray-starts.lock"

    @contextlib.contextmanager
    def entered(service: AbstractContextManager[Any]) -> Iterator[Any]:
        with contextlib.ExitStack() as stack:
            with lock.open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                started = stack.enter_context(service)
            yield started

    return entered


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
def choice_of_pytorch(request: pytest.FixtureRequest) -> None:
    """A model that an earlier test has loaded lets its process choose with kernels of ours, past
    whatever this test does to PyTorch's choice. Tests of both deciders say themselves which."""
    module = sys.modules.get("specdec_core.sampling.cpu")
    if module is not None and "decider" not in request.fixturenames:
        module.load_choice_kernels.cache_clear()


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
def demo(
    demo_model: Path, tmp_path_factory: pytest.TempPathFactory, started_alone: StartedAlone
) -> Iterator[DemoService]:
    from tests.demo_service import serve  # the engine's tests run without the edge's packages

    with started_alone(serve(tmp_path_factory.mktemp("serve") / "log")) as started:
        yield started


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """The folder of the demo model, pulled by `make setup`."""
    from deployments.demo.models import is_pulled, model_folder

    if not is_pulled("smollm2-135m"):
        pytest.skip("the demo model is not here: run `specdec models pull smollm2-135m`")
    return model_folder("smollm2-135m")
