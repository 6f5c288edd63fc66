"""Interface of a local drafter: it guesses the next tokens of sequences and runs no replica.

A drafter is one class in one file and one line in the registry. It guesses, and decides nothing:
the K policy chooses how many of its tokens a pass checks. It knows nothing of leases, groups, the
wire or K. A draft replica is no Drafter, because its tokens come with the result of a lease.

The caller keeps this order for every row: `begin`, then any number of `propose` and `learn`, then
`end`. A drafter that does not learn gets no `learn` and no `end`: its record of a row is dropped
with the row. A wrong guess costs time and never changes a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from specdec_core.sampling_params import SamplingRules


class Row(Protocol):
    """A live sequence as a drafter sees it."""

    @property
    def sequence_id(self) -> int: ...

    @property
    def ids(self) -> Sequence[int]:
        """Committed token IDs, prompt first. The list only grows."""
        ...

    @property
    def rules(self) -> SamplingRules:
        """Sampling rules, seed included. A drafter may guess by them, as the target chooses."""
        ...

    @property
    def slot(self) -> int | None:
        """KV slot in the target's process; None if the drafter runs elsewhere."""
        ...

    @property
    def draft_state(self) -> object:
        """The drafter's own record of the row, as `begin` returned it."""
        ...


class Offer(NamedTuple):
    """Tokens for one row, in order."""

    tokens: tuple[int, ...]
    chances: tuple[float, ...] = ()
    """For each token, the drafter's estimate that it is right once those before it are, in [0, 1].
    It counts until the results of its kind say more. Empty: the drafter has no estimate."""
    kinds: tuple[int, ...] = ()
    """For each token, its kind. Tokens of a kind are accepted about as often, and the K policy
    learns how often. Kinds need chances. Empty: all tokens of the drafter are of one kind."""


NO_OFFER = Offer(())


class Observed(NamedTuple):
    """Result of one target pass for a row. `Row.ids` already contains `chosen`."""

    num_fed: int
    """Committed tokens that the pass fed: a chunk of the prompt, or the pending token."""
    chosen: tuple[int, ...] = ()
    """Tokens that the pass committed. Empty for a chunk of the prompt."""
    num_accepted: int = 0
    """Number of drafted tokens among `chosen`, whichever source drafted them."""
    rejected: tuple[int, ...] = ()
    """The target's choices after `chosen`, where the caller knows them."""
    features: object | None = None
    """Hidden states of the fed positions at the layers of `Drafter.taps`, [num_fed, n * E]; None
    if the drafter has no taps or runs elsewhere."""


class Drafter(Protocol):
    """A source of drafted tokens in the scheduler's or the target's process.

    An implementation derives from this class and defines at least `name` and `propose`.
    """

    name: str
    """Name in the registry, in `spec_method` and in metrics."""
    taps: tuple[int, ...] = ()
    """Layers of the target whose input the drafter wants to see."""
    num_cache_layers: int = 0
    """Layers that the drafter adds to the target's KV cache."""
    learns: bool = False
    """Whether `learn` and `end` are called. If False, the caller makes no records for them."""

    def begin(self, row: Row) -> object:
        """Return the drafter's record of a new row, which `Row.draft_state` is from then on.

        Called before the first pass that feeds the row, with the prompt in `row.ids`. A row that
        needs the drafter later begins later.
        """
        return None

    def propose(self, rows: Sequence[Row], most: Sequence[int]) -> Sequence[Offer]:
        """Return an offer of at most `most[i]` tokens for each row; NO_OFFER if it has no guess.

        One call for all rows whose next tokens are wanted. `most[i]` is at least 1.
        """
        ...

    def learn(self, rows: Sequence[Row], observed: Sequence[Observed]) -> None:
        """Note what a pass did with its rows. Called after every pass, prompt chunks included."""

    def end(self, row: Row) -> None:
        """Forget a row that has ended. `row.ids` holds its whole answer.

        Called only if `learns`.
        """
