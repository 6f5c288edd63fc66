"""The path of one streamed chat request through the service, traced in one process.

python -m tests.house.token_path            prints files, functions and lines
python -m tests.house.token_path --write    writes the table of docs/architecture.md

Everything is the production's: the HTTP routes behind a real server, the ingress, the coordinator's
gRPC server and driver, the scheduler, the replica's loop and a tiny model of Llama's kind. Serve
and its proxies are missing.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple
from unittest import mock

import httpx

from deployments.replica.model_host import host_model
from deployments.text.tokenizer import load_text_model
from deployments.wire import liveness
from specdec_core.messages import Role
from tests.deployments.hosted_target import HostedTarget, tiny_config
from tests.deployments.http_server import application, listening
from tests.service.tiny_folder import save_tiny_llama

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- the path begins -->\n", "<!-- the path ends -->\n"
NUM_TOKENS = 16
NUM_TRACES = 24
"""Number of equal requests, so that everything that a timer runs is seen."""
_PACKAGES = (f"{ROOT}/specdec_core/", f"{ROOT}/deployments/")

STAGES = {
    "HTTP: the request is read, the answer is written": ("deployments/api",),
    "Ingress: text and token IDs": ("deployments/ingress", "deployments/text"),
    "Wire: records and protobuf messages": ("deployments/wire",),
    "Coordinator: streams and the scheduler's driver": ("deployments/coordinator",),
    "Scheduler: which rows form a batch, and what a result means": ("specdec_core/scheduler",),
    "Speculation: which tokens are drafted, and how many": ("specdec_core/speculation",),
    "Replica: leases become passes": ("deployments/replica", "specdec_core/worker"),
    "Model: the forward and the KV cache": (
        *("specdec_core/models", "specdec_core/layers", "specdec_core/batch_invariance"),
        *("specdec_core/kv_cache", "specdec_core/kernels"),
    ),
    "Sampling: logits become tokens": ("specdec_core/sampling",),
    "Records that all of these pass on": ("specdec_core",),
    "Beside the way: logs, metrics, spans": ("deployments",),
}
"""Stages of the path, in the order in which a reader should open them, and their folders. A file
belongs to the first stage that names its folder."""


class Function(NamedTuple):
    file: str
    """Path from the repository's root."""
    first: int
    last: int
    name: str
    """Qualified name."""


@dataclass(slots=True)
class Recorder:
    """Notes the functions of the two packages that are called while it is on."""

    is_on: bool = False
    called: dict[CodeType, None] = field(default_factory=dict)

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if self.is_on and event == "call":
            self.called.setdefault(frame.f_code)

    def functions(self) -> list[Function]:
        """Return the functions in the order of their first call. Lambdas and comprehensions belong
        to the function that has them."""
        found = []
        for code in self.called:
            is_ours = code.co_filename.startswith(_PACKAGES)
            if is_ours and not code.co_name.startswith("<"):
                last = max((line for *_, line in code.co_lines() if line), default=0)
                file = str(Path(code.co_filename).relative_to(ROOT))
                name = code.co_qualname.replace("<locals>.", "")
                found.append(Function(file, code.co_firstlineno, last, name))
        return found


@asynccontextmanager
async def _service(folder: Path) -> AsyncIterator[str]:
    """Serve a tiny model and yield the address."""
    # A fixed K: the default policy goes by measured times, which differ from run to run.
    config = tiny_config(folder, spec_policy="fixed", spec_tokens=4, prompt_lookup_min=1)
    hosted = host_model(config, Role.TARGET, num_threads=1)
    # Without heartbeats, because they would run during some of the requests alone.
    with mock.patch.multiple(liveness, HEARTBEAT_S=3600.0, SILENCE_S=3600.0):
        async with (
            application(
                text=load_text_model(str(folder)),
                model_name="tiny",
                make_target=lambda: HostedTarget(hosted),
                config=config.scheduler_config(),
            ) as (app, _),
            listening(app) as url,
        ):
            yield url


async def _ask(url: str) -> None:
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "one two three one two three one two"}],
        "max_tokens": NUM_TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
    }
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        answer = await client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.text.endswith("data: [DONE]\n\n"), answer.text


async def _record(recorder: Recorder, num_requests: int) -> list[list[Function]]:
    """Return the functions that ran during each request, after one that is not recorded."""
    traces = []
    with tempfile.TemporaryDirectory() as folder:
        async with _service(save_tiny_llama(Path(folder))) as url:
            await _ask(url)
            for _ in range(num_requests):
                recorder.called = {}
                recorder.is_on = True
                await _ask(url)
                recorder.is_on = False
                traces.append(recorder.functions())
    return traces


def trace(num_requests: int) -> list[list[Function]]:
    """Return the functions that each of some equal requests runs, in the order of first calls."""
    recorder = Recorder()
    before = sys.getprofile()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    try:
        return asyncio.run(asyncio.wait_for(_record(recorder, num_requests), 120))
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # type: ignore[arg-type]


def usual(traces: list[list[Function]]) -> list[Function]:
    """Return the functions that at least three of the traces have, in order. A timer may run during
    some requests alone."""
    counts = Counter(chain(*traces))
    return [function for function in dict.fromkeys(chain(*traces)) if counts[function] >= 3]


def figures(functions: list[Function]) -> tuple[int, int, int]:
    """Return the numbers of files, functions and lines. Lines of nested functions count once."""
    lines: dict[str, set[int]] = {}
    for function in functions:
        lines.setdefault(function.file, set()).update(range(function.first, function.last + 1))
    return len(lines), len(functions), sum(map(len, lines.values()))


def table(functions: list[Function]) -> str:
    """Return the path as Markdown: stages, their files, and what runs of each, in order."""
    files: dict[str, list[str]] = {}
    for function in functions:
        files.setdefault(function.file, []).append(function.name)
    parts = []
    for stage, folders in STAGES.items():
        of_stage = [name for name in files if name.startswith(tuple(f"{f}/" for f in folders))]
        parts += [f"### {stage}\n"] if of_stage else []
        for name in of_stage:
            names = ", ".join(f"`{one}`" for one in files.pop(name))
            parts.append(f"- `{name}`  \n  {_sentence(name)}  \n  {names}\n")
    assert not files, "the last stages name both packages"
    return "\n".join(parts)


def _sentence(name: str) -> str:
    """Return the first sentence of a file's docstring."""
    text = ast.get_docstring(ast.parse((ROOT / name).read_text())) or ""
    return " ".join(text.split("\n\n")[0].split()).split(". ")[0].rstrip(".") + "."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write docs/architecture.md")
    options = parser.parse_args()
    functions = usual(trace(NUM_TRACES))
    print("{} files, {} functions, {} lines".format(*figures(functions)))
    if options.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(before + BEGIN + "\n" + table(functions) + "\n" + END + after)
    else:
        print(table(functions))


if __name__ == "__main__":
    main()
