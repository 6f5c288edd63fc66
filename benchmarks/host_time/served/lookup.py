"""Inside the coordinator's process: n-gram proposals whose acceptance is scripted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.host_time.served.script import TokenScript
from specdec_core.config import NgramConfig, SpeculationConfig
from specdec_core.speculation.drafter import Row
from specdec_core.speculation.ngram import NgramDrafter, NgramIndex


class ScriptedIndex(NgramIndex):
    """Looks up as the service does, for the time that it takes, and proposes what a script says."""

    def __init__(self, ids: Sequence[int], config: NgramConfig, script: TokenScript) -> None:
        """`script` guesses with the acceptance that the benchmark sets."""
        super().__init__(ids, config)
        self._script = script
        self._number = script.begin(ids)
        self._agreed = config.lookup_max

    def propose(self, num_tokens: int) -> tuple[int, ...]:
        """See NgramIndex. Every proposal agrees as far as is looked."""
        super().propose(num_tokens)
        self.match_len = self._agreed
        return tuple(self._script.tokens(self._number, len(self._ids), num_tokens))


def scripted_lookups(script: TokenScript) -> Callable[[SpeculationConfig], NgramDrafter]:
    """Return a function that takes the place of NgramDrafter in the registry."""

    class ScriptedDrafter(NgramDrafter):
        def begin(self, row: Row) -> NgramIndex:
            return ScriptedIndex(row.ids, self.lengths, script)

    return ScriptedDrafter
