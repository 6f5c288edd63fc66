"""Self-checks, one by one: which attention serves, whether passes can be recorded, whether exact
numerics can be kept by recorded passes and by eager ones. What fails here says why."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import torch

from benchmarks.gpu_report.networks import Network, cached, config_of, random_network
from benchmarks.gpu_report.results import Findings
from benchmarks.gpu_report.settings import NetworkShape, Settings
from specdec_core.kv_cache.paged import BLOCK_SIZE
from specdec_core.layers.attention import select as attention_probe
from specdec_core.loading.self_check import make_exact
from specdec_core.model import score
from specdec_core.sampling_params import SamplingParams, SamplingRules
from specdec_core.worker.model_runner import kv_shape
from specdec_core.worker.round import propose, round_row

_ROWS = 5
_PROMPT = 30
_MAX_LEN = 1024
_TOLERANCE = 0.05
"""Relative to the largest logit: kernels of another shape may round another way."""

Check = Callable[[], str]
"""Returns what it found. Raises where it does not hold."""


def measure(settings: Settings, findings: Findings) -> None:
    target, draft = settings.sizes.target, settings.sizes.draft
    network = random_network(draft, settings)
    checks: dict[str, Check] = {
        f"attention over blocks, {target.name}": partial(_attention, target, settings),
        f"recorded passes, {draft.name}": partial(_recorded_passes, network),
        f"drafts in one go, {draft.name}": partial(_draft_in_one_go, network),
        f"exact numerics of recorded passes, {draft.name}": partial(_exact, network, True),
        f"exact numerics of eager passes, {draft.name}": partial(_exact, network, False),
    }
    for name, check in checks.items():
        _judge(name, check, findings)


def _judge(name: str, check: Check, findings: Findings) -> None:
    """A CUDA error breaks the process: what comes after fails too, and says so."""
    logged = _Logged()
    logging.getLogger("specdec_core").addHandler(logged)
    try:
        found, holds = check(), True
    except Exception as error:  # whatever a library or a compiler raises
        found, holds = f"{type(error).__name__}: {error}"[:300], False
    finally:
        logging.getLogger("specdec_core").removeHandler(logged)
    findings.row("checks", check=name, holds=holds, found=found, log="; ".join(logged.lines[:4]))


class _Logged(logging.Handler):
    """What the engine says meanwhile: why another kernel is not used, for one."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage()[:200])


def _attention(shape: NetworkShape, settings: Settings) -> str:
    config, device = config_of(shape), torch.device(settings.device)
    kv = kv_shape(config, getattr(torch, settings.sizes.dtype), device)
    found = attention_probe.find_block_attention(kv, shape.heads, BLOCK_SIZE)
    if found is None and device.type == "cuda":
        raise RuntimeError("no kernel over a block table: every pass gathers its keys and values")
    return "gathered, as on every CPU" if found is None else type(found).__name__


@torch.inference_mode()
def _recorded_passes(network: Network) -> str:
    """Their logits are those of eager passes, but for rounding."""
    models = [
        cached(network, tokens=4096, max_len=_MAX_LEN, is_recorded=is_recorded)
        for is_recorded in (True, False)
    ]
    change, scale = 0.0, 0.0
    slots = [{model.allocate() for model in models}.pop() for _ in range(_ROWS)]
    for counts in ((_PROMPT, 3, 17, 1, 60), *((1,) * 5, (5,) * 5, (1, 4, 2, 5, 3)) * 2):
        feeds = [(s, range(2, 2 + n), n) for s, n in zip(slots, counts, strict=True)]
        recorded, eager = (score(model, feeds).float() for model in models)
        change = max(change, float((recorded - eager).abs().max()))
        scale = max(scale, float(eager.abs().max()))
    fixed = models[0]._fixed
    num_recorded = 0 if fixed is None else fixed.passes.num_recorded
    if not num_recorded:
        raise RuntimeError("nothing was recorded: the log of this step says why")
    if not change <= _TOLERANCE * scale:
        raise RuntimeError(f"logits change by {change:.3g}, the largest is {scale:.3g}")
    return f"{num_recorded} shapes; logits change by {change:.3g}, the largest is {scale:.3g}"


def _draft_in_one_go(network: Network) -> str:
    """K tokens are one call, without the host in between."""
    model = cached(network, tokens=4096, max_len=_MAX_LEN)
    rules = SamplingRules(SamplingParams(temperature=0.0), prompt_len=_PROMPT)
    slots = [model.allocate() for _ in range(_ROWS)]
    score(model, [(slot, range(1, 1 + _PROMPT), 0) for slot in slots])
    proposals = propose(model, [round_row(slot, (7,), (), 4, rules) for slot in slots])
    if not model.drafts_in_one_go:
        raise RuntimeError("it drafts token by token")
    return f"{len(proposals)} rows, {len(proposals[0])} tokens each"


def _exact(network: Network, is_recorded: bool) -> str:
    return str(make_exact(cached(network, tokens=8192, max_len=_MAX_LEN, is_recorded=is_recorded)))
