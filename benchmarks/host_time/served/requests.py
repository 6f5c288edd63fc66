"""CPU time that a request costs each process of a service, however long its answer is."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.harness.client import ask_all
from benchmarks.host_time.served.snapshot import Watched
from benchmarks.host_time.served.waiting import CpuUse
from deployments.cli.bench.client import Prompt
from specdec_core.errors import SpecdecError

_AT_A_TIME = 8
_TIMEOUT_S = 60.0
_SAMPLING = {"temperature": 0, "max_tokens": 1, "ignore_eos": True}


def use_of_requests(url: str, watched: Watched, count: int) -> Mapping[str, CpuUse]:
    """Ask `count` chats for one token each, eight at a time; return the use of one by process.

    Raises SpecdecError if one fails.
    """
    _ask(url, "Warm up", _AT_A_TIME)
    before = watched.use()
    _ask(url, "Tell me a story about ship", count)
    after = watched.use()
    return {name: use.since(before[name]).times(1 / count) for name, use in after.items()}


def _ask(url: str, text: str, count: int) -> None:
    prompts = [
        Prompt(messages=[{"role": "user", "content": f"{text} {number}."}], fields=_SAMPLING)
        for number in range(count)
    ]
    run = ask_all(url, prompts, _AT_A_TIME, _TIMEOUT_S)
    if run.failures:
        raise SpecdecError(f"requests failed: {dict(run.failures)}")
