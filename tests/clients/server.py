"""The real HTTP application over the scripted model, without Ray, for clients of any language.

`python -m tests.clients.server --port N [--script FILE] [--format NAME] [--record FILE]` runs until
Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from benchmarks.harness.ports import free_port
from deployments.demo.models import model_folder
from deployments.text.tokenizer import TextModel, load_text_model
from tests.clients.dialect_text import LOOP_SCRIPT, dialect_text, written
from tests.clients.dialects import DIALECTS
from tests.clients.recording import Recorder
from tests.clients.scripted_model import Script, ScriptedReplica
from tests.deployments.http_server import application

MODEL = "scripted"
SCRIPT = Path(__file__).with_name("script.json")
_TEMPLATE = Path(__file__).with_name("chat_template.jinja")
_MAX_MODEL_LEN = 1024
_START_S = 60


def scripted_text() -> TextModel:
    """The demo model's tokenizer under a chat template that shows tools."""
    folder = str(model_folder("smollm2-135m"))
    return load_text_model(folder, chat_template=_TEMPLATE, max_model_len=_MAX_MODEL_LEN)


def _spoken(format: str | None, script: Path | None) -> tuple[TextModel, Script]:
    """Return a model that speaks the format, and what it says. None: plain ChatML."""
    if format is None:
        return scripted_text(), Script.read(script or SCRIPT)
    dialect = DIALECTS[format]
    text = dialect_text(dialect)
    writes = functools.partial(written, text, dialect)
    return text, Script.read(script or LOOP_SCRIPT, writes, dialect.answer_start)


@contextlib.asynccontextmanager
async def scripted_application(
    script: Path | None = None, format: str | None = None, **settings: Any
) -> AsyncIterator[FastAPI]:
    """The application, with other settings of `tests.deployments.http_server.application`."""
    text, rules = _spoken(format, script)
    async with application(
        text=text, model_name=MODEL, make_target=lambda: ScriptedReplica(text, rules), **settings
    ) as (app, _):
        yield app


async def _serve(
    port: int,
    recording: Path | None,
    started: Future[uvicorn.Server],
    **settings: Any,
) -> None:
    """Serve until the server in `started` is told to exit."""
    async with scripted_application(**settings) as app:
        served = app if recording is None else Recorder(app, recording)
        server = uvicorn.Server(
            uvicorn.Config(
                served,
                host="127.0.0.1",
                port=port,
                lifespan="off",
                log_level="warning",
                timeout_graceful_shutdown=1,
            )
        )
        serving = asyncio.create_task(server.serve())
        while not (server.started or serving.done()):
            await asyncio.sleep(0.01)
        started.set_result(server)
        await serving


@contextlib.contextmanager
def scripted_server(recording: Path | None = None, **settings: Any) -> Iterator[str]:
    """The server in a thread; yields its URL up to /v1. Settings as of `scripted_application`."""
    port = free_port()
    started: Future[uvicorn.Server] = Future()

    def run() -> None:
        try:
            asyncio.run(_serve(port, recording, started, **settings))
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=run, name="scripted server")
    thread.start()
    server = started.result(_START_S)
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.should_exit = True
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="TCP port on 127.0.0.1.")
    parser.add_argument("--script", type=Path, help="Rules: a JSON file.")
    parser.add_argument("--format", choices=list(DIALECTS), help="Format that the model speaks.")
    parser.add_argument("--record", type=Path, help="Write the requests to this JSON file.")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(
            _serve(
                options.port,
                options.record,
                Future(),
                script=options.script,
                format=options.format,
            )
        )


if __name__ == "__main__":
    main()
