"""Streams that keep a service busy and cost this machine as little as they can.

A client of a GPU's service has a machine of its own. Here it shares the cores, so chunks are read
and thrown away.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import aiohttp

from benchmarks.host_time.served.script import FIRST_TEXT_ID
from benchmarks.host_time.served.shared_numbers import VOCAB_SIZE
from specdec_core.errors import SpecdecError

PROMPT_LEN = 512
"""Tokens of every prompt."""
_MAX_TOKENS = 7000
"""Tokens of an answer, which no measurement should reach: its prompt and it fit the model."""
_START_S = 60.0
"""Maximum time until every stream has its first chunk."""


def prompts(count: int, seed: int) -> list[list[int]]:
    """Return random prompts that begin differently; another `seed` gives others."""
    rng = random.Random(seed)
    return [
        [rng.randrange(FIRST_TEXT_ID, VOCAB_SIZE) for _ in range(PROMPT_LEN)] for _ in range(count)
    ]


@contextmanager
def streams(url: str, asked: Sequence[list[int]], body: Mapping[str, Any]) -> Iterator[_Streams]:
    """Ask for an answer to every prompt; inside, all of them stream. Then leave them unread.

    Raises SpecdecError if one is refused, ends early, or does not begin within a minute.
    """
    reading = _Streams(url, asked, body)
    thread = threading.Thread(target=reading.run, name="streams")
    thread.start()
    try:
        reading.wait_until_all_have_begun()
        yield reading
        reading.check()
    finally:
        reading.stop()
        thread.join()


class _Streams:
    """Readers of all streams, in a thread with a loop."""

    def __init__(self, url: str, asked: Sequence[list[int]], body: Mapping[str, Any]) -> None:
        self._url = url
        self._asked = asked
        self._body = {
            "max_tokens": _MAX_TOKENS,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
        }
        self._body |= body
        self._num_begun = 0
        self._failure: str | None = None
        self._changed = threading.Event()
        """Set when all have begun, or one has failed."""
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()

    def run(self) -> None:
        """Read until `stop`."""
        self._loop.run_until_complete(self._read_all())
        self._loop.close()

    def stop(self) -> None:
        """Close all connections."""
        self._loop.call_soon_threadsafe(self._stopped.set)

    def wait_until_all_have_begun(self) -> None:
        """Raise SpecdecError if they do not."""
        if not self._changed.wait(_START_S):
            raise SpecdecError(f"{self._num_begun} of {len(self._asked)} streams began in a minute")
        self.check()

    def check(self) -> None:
        """Raise SpecdecError if a stream has ended."""
        if self._failure is not None:
            raise SpecdecError(self._failure)

    async def _read_all(self) -> None:
        timeout = aiohttp.ClientTimeout(total=None)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
            readers = [asyncio.create_task(self._read(http, prompt)) for prompt in self._asked]
            await self._stopped.wait()
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)

    async def _read(self, http: aiohttp.ClientSession, prompt: list[int]) -> None:
        try:
            async with http.post(
                f"{self._url}/v1/completions", json={"prompt": prompt, **self._body}
            ) as answer:
                if answer.status != 200:
                    self._fail(f"HTTP {answer.status}: {(await answer.text())[:200]}")
                    return
                await answer.content.readany()
                self._note_begun()
                while await answer.content.readany():
                    pass
            self._fail("a stream has ended before its measurement: lower --seconds")
        except aiohttp.ClientError as error:
            self._fail(f"a stream broke: {error}")

    def _note_begun(self) -> None:
        self._num_begun += 1
        if self._num_begun == len(self._asked):
            self._changed.set()

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason
        self._changed.set()
