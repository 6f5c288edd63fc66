"""Measure the parts of a round of a service that has modelled devices in its replicas.

python -m benchmarks.host_time.served                    the default cells, 2.5 minutes
python -m benchmarks.host_time.served h100/64/plain none/8/ngram-0.7
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import typer
from rich.console import Console
from rich.progress import track

from benchmarks.harness.commands import write_json
from benchmarks.harness.machine import commit, cpu_name
from benchmarks.harness.ports import free_port
from benchmarks.harness.starting import service
from benchmarks.host_time.cells import GPU_MAX_K, Cell, DeviceKind, Method, chosen
from benchmarks.host_time.served.cells import DEFAULT, asked
from benchmarks.host_time.served.devices import KINDS
from benchmarks.host_time.served.model_folder import MAX_POSITIONS, write_model
from benchmarks.host_time.served.parts import Round, round_between
from benchmarks.host_time.served.report import NOTE, as_json, plot, tables
from benchmarks.host_time.served.requests import use_of_requests
from benchmarks.host_time.served.shared_numbers import (
    CONTROL,
    Control,
    SharedNumbers,
    set_control,
    shared_numbers,
)
from benchmarks.host_time.served.snapshot import Watched
from benchmarks.host_time.served.streams import prompts, streams
from benchmarks.host_time.served.swapping import variables
from benchmarks.host_time.served.waiting import CpuUse
from deployments.cli.plotting import check_can_plot
from deployments.config.service import ENV_PREFIX, ServiceConfig
from specdec_core.config import Numerics, SpecMethod
from specdec_core.messages import Role

_WARM_UP_S = 1.0
_PAUSE_S = 0.3
"""Time between two cells, in which the service gives up the streams of the first."""


def main(
    cells: Annotated[list[str] | None, typer.Argument(help="DEVICE/STREAMS/METHOD.")] = None,
    seconds: Annotated[float, typer.Option(help="Seconds of each cell's measurement.")] = 2.5,
    slower: Annotated[
        float, typer.Option(help="Factor by which the host meant is slower than this one.")
    ] = 1.0,
    requests: Annotated[
        int, typer.Option(help="Chats of one token to measure as well. Default: none.")
    ] = 0,
    output: Annotated[Path | None, typer.Option(help="JSON file.")] = None,
    plot_file: Annotated[Path | None, typer.Option("--plot", help="Image file.")] = None,
) -> None:
    """Measure what a round of a service takes besides modelled passes."""
    if plot_file is not None:
        check_can_plot()
    asked_for = chosen(cells) if cells else DEFAULT
    rounds: dict[str, Round] = {}
    with modelled_service(asked_for) as measured:
        for cell in track(asked_for, description="cells"):
            rounds[cell.name] = measured.measure(cell, seconds, slower)
        use = measured.use_of_requests(requests, slower) if requests else {}
    console = Console(width=240)
    console.print(NOTE, *tables(rounds, use), sep="\n")
    context = {"commit": commit(), "processor": cpu_name(), "cores": os.cpu_count()}
    context |= {"seconds": seconds, "slower": slower}
    write_json(as_json(rounds, use, context), output)
    if plot_file is not None:
        plot(rounds, plot_file)
    raise typer.Exit(0 if all(one.adds_up for one in rounds.values()) else 1)


@contextmanager
def modelled_service(cells: Sequence[Cell]) -> Iterator[ModelledService]:
    """Start a service that can be measured in all `cells`. Raises SpecdecError if it cannot."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        control = shared_numbers(folder, CONTROL)
        set_control(control, Control())
        config = _config(folder, cells)
        with patch.dict(os.environ, variables(folder)), service(config) as process:
            url = f"http://127.0.0.1:{config.port}"
            yield ModelledService(url, control, Watched(url, folder, process.pid))


class ModelledService:
    """A service whose devices and acceptance the benchmark sets while it runs."""

    def __init__(self, url: str, control: SharedNumbers, watched: Watched) -> None:
        self._url = url
        self._control = control
        self._watched = watched
        self._num_cells = 0

    def measure(self, cell: Cell, seconds: float, slower: float) -> Round:
        """Keep the streams of one cell busy and return what a round takes."""
        place = KINDS.index(cell.device)
        set_control(self._control, Control(cell.method.acceptance, place, slower))
        self._num_cells += 1
        texts = prompts(cell.rows, seed=self._num_cells)
        with streams(self._url, texts, asked(cell.method)):
            time.sleep(_WARM_UP_S)
            before = self._watched.snapshot()
            time.sleep(seconds)
            found = round_between(before, self._watched.snapshot())
        time.sleep(_PAUSE_S)
        return found.scaled(slower)

    def use_of_requests(self, count: int, slower: float) -> dict[str, CpuUse]:
        """Return what a request of one token takes of each process."""
        set_control(self._control, Control(device=KINDS.index(DeviceKind.H100), factor=slower))
        found = use_of_requests(self._url, self._watched, count)
        return {name: use.times(slower) for name, use in found.items()}


def _config(folder: Path, cells: Sequence[Cell]) -> ServiceConfig:
    """Return the settings of the service, and write the models that it names."""
    most = max(cell.rows for cell in cells)
    for role in Role:
        write_model(folder / role.value)
    settings: dict[str, Any] = {
        "spec_method": SpecMethod.NGRAM,
        "spec_tokens": GPU_MAX_K,
        "max_num_seqs": most,
        "window": most,
        "max_model_len": MAX_POSITIONS,
        "kv_cache_tokens": (most + 1) * MAX_POSITIONS,
        "numerics": Numerics.FAST,
        "torch_threads": 1,
        "audit_share": 0.0,
    }
    if any(cell.method is Method.DRAFT for cell in cells):
        draft = str(folder / Role.DRAFT.value)
        settings |= {"spec_method": SpecMethod.HYBRID, "spec_model": draft, "draft_replicas": 1}
    return ServiceConfig.of(
        model=str(folder / Role.TARGET.value),
        port=free_port(),
        grpc_port=free_port(),
        **{name: value for name, value in settings.items() if not _is_set(name)},
    )


def _is_set(name: str) -> bool:
    """Return whether the caller's environment has a setting of the service."""
    return f"{ENV_PREFIX}{name}".upper() in os.environ
