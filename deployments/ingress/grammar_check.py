"""Checks the grammars of requests before these enter the queue, where no other request waits."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b

from deployments.text.grammar_library import check_end, library
from deployments.text.grammar_limits import GrammarLimits
from deployments.text.grammar_process import GrammarReader
from specdec_core.grammar import GrammarSpec

_NUM_READERS = 2
"""Processes that read grammars. One that is busy with a costly grammar leaves the other."""
_NUM_KNOWN = 4096
"""Digests of grammars that were read without an error."""


class GrammarCheck:
    """The limits, and the grammars that are known to keep them."""

    def __init__(self, limits: GrammarLimits, end_token_ids: Collection[int]) -> None:
        self._limits = limits
        self._end_token_ids = end_token_ids
        self._threads = ThreadPoolExecutor(_NUM_READERS, thread_name_prefix="grammar")
        self._readers = [GrammarReader(limits) for _ in range(_NUM_READERS)]
        self._known: OrderedDict[bytes, None] = OrderedDict()

    async def check(self, spec: GrammarSpec) -> None:
        """Raise InvalidRequestError for a grammar that cannot be read, or costs too much."""
        check_end(self._end_token_ids)
        library()
        self._limits.check_size(spec)
        digest = blake2b(f"{spec.kind} {spec.source}".encode(errors="surrogatepass")).digest()
        if digest not in self._known:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._threads, self._read, spec)
        self._known[digest] = None
        self._known.move_to_end(digest)
        if len(self._known) > _NUM_KNOWN:
            self._known.popitem(last=False)

    def _read(self, spec: GrammarSpec) -> None:
        """Check a grammar in one of the threads. There are as many threads as readers."""
        reader = self._readers.pop()
        try:
            reader.check(spec)
        finally:
            self._readers.append(reader)
