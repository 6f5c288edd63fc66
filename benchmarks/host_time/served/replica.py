"""Inside a replica's process: a scripted model on a modelled device, and a watch on its leases."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.host_time.device import Pass, numbers_wait_for
from benchmarks.host_time.pass_times import NO_TIME
from benchmarks.host_time.scripted import ScriptedModel
from benchmarks.host_time.served.devices import SwitchedDevice
from benchmarks.host_time.served.script import TokenScript
from benchmarks.host_time.served.shared_numbers import CONTROL, SharedNumbers, shared_numbers
from benchmarks.host_time.served.waiting import GapWait, OwnWait
from specdec_core.loading.files import model_digest
from specdec_core.loading.fingerprint import numerics_fingerprint
from specdec_core.loading.loader import LoadConfig, LoadedModel
from specdec_core.loading.tokenizers import load_tokenizer
from specdec_core.messages import GroupLease, GroupResult, Role
from specdec_core.worker.replica import Replica

_DEFAULT_TOKENS = 1 << 17


class ModelledLoader:
    """Takes the place of `load_model`. The folder's name is the role of its model."""

    def __init__(self, folder: Path) -> None:
        """`folder` has the files of shared numbers."""
        self._folder = folder
        self._waiting = ExitStack()
        """Holds what lasts as long as the process."""

    def __call__(self, path: str, config: LoadConfig, companion: object = None) -> LoadedModel:
        """Load the folder's tokenizer and make a model that has no weights of it."""
        role, control = Role(Path(path).name), shared_numbers(self._folder, CONTROL)
        device = SwitchedDevice(role, control)
        vocab_size = len(load_tokenizer(path))
        is_target = role is Role.TARGET
        acceptance = (lambda: 1.0) if is_target else (lambda: control["acceptance"])
        model = ScriptedModel(
            device,
            NO_TIME,
            TokenScript(vocab_size, acceptance),
            vocab_size=vocab_size,
            kv_cache_tokens=config.kv_cache_tokens or _DEFAULT_TOKENS,
            max_model_len=config.max_model_len or _DEFAULT_TOKENS,
            enable_prefix_caching=config.enable_prefix_caching,
            max_choices=config.max_choices,
        )
        self._waiting.enter_context(numbers_wait_for(device))
        watch_executions(device.passes, shared_numbers(self._folder, role.value))
        digest = model_digest(Path(path))
        return LoadedModel(
            model=model,
            end_token_ids=frozenset(),
            digest=digest,
            name=path,
            fingerprint=numerics_fingerprint(model, digest),
        )


def watch_executions(passes: list[Pass], told: SharedNumbers) -> None:
    """Let every replica of this process tell of its leases; `passes` are those of its device."""
    execute, own, gap = Replica.execute, OwnWait(), GapWait()

    def watched(self: Replica, lease: GroupLease) -> GroupResult:
        gap_waited_s = gap.end()
        passes.clear()
        begun_s, waited_s = time.perf_counter(), own()
        result = execute(self, lease)
        note_execution(told, passes, begun_s, time.perf_counter(), own() - waited_s)
        told["gap_waited_s"] += gap_waited_s
        gap.begin()
        return result

    Replica.execute = watched  # type: ignore[method-assign]


def note_execution(
    told: SharedNumbers, passes: Sequence[Pass], begun_s: float, ended_s: float, waited_s: float
) -> None:
    """Add one lease, which ran from `begun_s` to `ended_s` by the clock of `passes`."""
    told["leases"] += 1
    told["waited_s"] += waited_s
    if not passes:
        told["before_s"] += ended_s - begun_s
        return
    device_s = sum(one.ended - one.started for one in passes)
    first_s, last_s = passes[0].launched, passes[-1].ended
    told["before_s"] += first_s - begun_s
    told["device_s"] += device_s
    told["between_s"] += last_s - first_s - device_s
    told["after_s"] += ended_s - last_s
